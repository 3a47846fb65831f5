"""Update rules, their inputs, and the update of a variable as a call of a model-local function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import UnsupportedError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.training.optimizers.argument_checks import Checked


@dataclass(frozen=True)
class SharedInput:
    """The values that the updates of all variables of one element type share."""

    b: Builder  # adds the nodes
    dtype: ir.DataType  # of updates: float32 or float64
    rate: ir.Value  # the learning rate of this step: shape (), `dtype`
    others: Mapping[str, ir.Value]  # the present states that belong to no variable


@dataclass(frozen=True)
class UpdateInput:
    """A variable, or the rows of it that a sparse gradient touches, in one step."""

    b: Builder  # adds the nodes
    value: ir.Value  # the present value: float32 or float64
    gradient: ir.Value  # the same shape and type


class NoSlots(NamedTuple):
    """The slots of a rule that has none."""


@dataclass(frozen=True, kw_only=True)
class UpdateRule(Checked):
    """How one step changes a variable: hyperparameters, slots, and functions that add nodes.

    A rule is a value without state. A child is a frozen dataclass of its hyperparameters, with at
    least `update`. They are attributes of the optimizer that has the rule:

        class SignRule(UpdateRule):
            def update(self, given, shared, slots):
                b = given.b
                return b.sub(given.value, b.mul(b.sign(given.gradient), shared)), slots

        optimizer = Optimizer(name="Sign", learning_rate=1e-3, rule=SignRule())

    Attributes:
        slots: A NamedTuple. Its fields name the tensors, shaped like the variable, that are kept
            from step to step.
    """

    slots: ClassVar[type[Any]] = NoSlots

    @property
    def touches_rows_only(self) -> bool:
        """Whether a sparse gradient changes the touched rows of variable and slots only."""
        return True

    def initial_slot(self, slot: str) -> float:
        """Return the first value of every element of a slot."""
        del slot
        return 0.0

    def initial_others(self) -> dict[str, np.ndarray]:
        """Return name -> initial value of the states that belong to no variable: scalars."""
        return {}

    def shared(self, given: SharedInput) -> Any:
        """Return a value, or a NamedTuple of values, that all variables of one type share."""
        return given.rate

    def advance(self, given: SharedInput) -> dict[str, ir.Value]:
        """Return name -> next value of the states that belong to no variable."""
        del given
        return {}

    def update(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Return the new value of a variable (or of rows of it) and its new slots.

        Args:
            given: The variable, its gradient, and the builder of the function's body, which sees
                only the tensors that are passed here, without shapes.
            shared: The result of the method `shared`.
            slots: The present slots, an instance of the class `slots`.
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not say how it updates a variable",
            remedy="give the optimizer a rule, a child of UpdateRule",
        )


DOMAIN = "amp_rewrite"
"""The domain of the functions."""

OLDEST_IR = 8
"""The version of the format from which a model has functions."""


class UpdateFunctions:
    """The functions of one rule in one model: a step has one node per variable.

    All variables of one element type share a function. Runtimes inline them.
    """

    def __init__(self, rule: UpdateRule, name: str, b: Builder) -> None:
        """Begin without functions; `name` is that of the optimizer, `b` adds the calls."""
        self._rule, self._name, self._b = rule, name, b
        self._made: dict[tuple[ir.DataType, ...], tuple[ir.Function, list[int]]] = {}

    def call(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Add a call; return the new value of the variable (or of rows of it) and its new slots."""
        tensors = [given.value, given.gradient, *slots, *_named(shared).values()]
        key = tuple(self._b.type_of(v) for v in tensors)
        if key not in self._made:
            self._made[key] = self._make(given, shared, slots)
        function, used = self._made[key]
        inputs, count = [tensors[i] for i in used], 1 + len(slots)
        outputs = self._b.op(function.name, *inputs, outputs=count, domain=DOMAIN)
        results: Sequence[ir.Value] = outputs if isinstance(outputs, tuple) else (outputs,)
        for result, old in zip(results, (given.value, *slots), strict=True):
            result.type = ir.TensorType(self._b.type_of(old))
            self._b.shaped_like(result, old)
        return results[0], type(slots)(*results[1:])

    def _make(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Function, list[int]]:
        """Return the function, and the indices of the inputs that it uses."""
        numbers = _inputs(_named(shared), scalars=True)
        states = _inputs(slots._asdict())
        value, gradient = _inputs({"value": given.value, "gradient": given.gradient})
        inputs = [value, gradient, *states, *numbers]
        graph = ir.Graph([], [], nodes=[], opset_imports={"": self._b.opset})
        b = self._b.body(graph)
        inner = UpdateInput(b, value, gradient)
        body_shared = numbers[0] if isinstance(shared, ir.Value) else type(shared)(*numbers)
        updated, new = self._rule.update(inner, body_shared, type(slots)(*states))
        taken = {*inputs}
        for result in (updated, *new):  # an output is computed inside, and is one output only
            graph.outputs.append(b.op("Identity", result) if result in taken else result)
            taken.add(result)
        used = [i for i, v in enumerate(inputs) if v.uses()]
        graph.inputs.extend(inputs[i] for i in used)
        return self._register(graph), used

    def _register(self, graph: ir.Graph) -> ir.Function:
        model = self._b.model
        names = FreeNames(f.name for f in model.functions.values() if f.domain == DOMAIN)
        function = ir.Function(DOMAIN, names.take(self._name), graph=graph, attributes=[])
        model.functions[function.identifier()] = function
        model.graph.opset_imports.setdefault(DOMAIN, 1)
        model.ir_version = max(model.ir_version, OLDEST_IR)
        return function


def _inputs(values: Mapping[str, ir.Value], *, scalars: bool = False) -> list[ir.Value]:
    inputs = [ir.Value(name=name, type=value.type) for name, value in values.items()]
    for scalar in inputs if scalars else ():
        scalar.shape = ir.Shape([])
    return inputs


def _named(shared: Any) -> dict[str, ir.Value]:
    return {"rate": shared} if isinstance(shared, ir.Value) else shared._asdict()
