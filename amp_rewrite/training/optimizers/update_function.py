"""The update of a variable as one call of a model-local function."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from amp_rewrite.graph.names import FreeNames
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.optimizers.update_rule import UpdateInput, UpdateRule

DOMAIN = "amp_rewrite"
"""The domain of the functions."""

_OLDEST_IR = 8
"""The version of the format from which a model has functions."""


class UpdateFunctions:
    """The functions of one rule in one model: a step has one node per variable.

    Runtimes inline them, so that they cost no time. All variables of one element type that the
    rule treats in the same way share a function.
    """

    def __init__(self, rule: UpdateRule, name: str, b: Builder) -> None:
        """Begin without functions, which have the optimizer's name; `b` adds the calls."""
        self._rule, self._name, self._b = rule, name, b
        self._made: dict[Hashable, tuple[ir.Function, list[int]]] = {}

    def call(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Value, Any]:
        """Add a call; return the new value of the variable (or of rows of it) and its new slots."""
        tensors = [given.value, given.multiple, *slots, *_tensors(shared)]
        variant = self._rule.variant(given.variable)
        key = variant, tuple(self._b.type_of(v) for v in tensors)
        if key not in self._made:
            self._made[key] = self._make(given, shared, slots)
        function, used = self._made[key]
        count = 1 + len(slots)
        name, inputs = function.name, [tensors[i] for i in used]
        outputs = self._b.op(name, *inputs, outputs=count, domain=DOMAIN)
        results: Sequence[ir.Value] = outputs if isinstance(outputs, tuple) else (outputs,)
        for result, old in zip(results, (given.value, *slots), strict=True):
            result.type = ir.TensorType(self._b.type_of(old))
            self._b.shaped_like(result, old)
        return results[0], type(slots)(*results[1:])

    def _make(self, given: UpdateInput, shared: Any, slots: Any) -> tuple[ir.Function, list[int]]:
        """Return the function, and which of all inputs it has: those that it uses."""
        scalars = list(_tensors(shared))
        values = [_input("value", given.value), _input("gradient", given.multiple)]
        states = [_input(n, v) for n, v in zip(type(slots)._fields, slots, strict=True)]
        numbers = [_input(n, v, rank=0) for n, v in zip(_names(shared), scalars, strict=True)]
        graph = ir.Graph([], [], nodes=[], opset_imports={"": self._b.opset})
        inner = replace(given, b=self._b.body(graph), value=values[0], multiple=values[1])
        body_shared = numbers[0] if isinstance(shared, ir.Value) else type(shared)(*numbers)
        value, new = self._rule.update(inner, body_shared, type(slots)(*states))
        inputs = [*values, *states, *numbers]
        _add_outputs(inner.b, graph, (value, *new), inputs)
        used = [i for i, v in enumerate(inputs) if v.uses()]
        graph.inputs.extend(inputs[i] for i in used)
        return self._register(graph), used

    def _register(self, graph: ir.Graph) -> ir.Function:
        model, stem = self._b.model, self._name
        name = FreeNames(f.name for f in model.functions.values() if f.domain == DOMAIN).take(stem)
        function = ir.Function(DOMAIN, name, graph=graph, attributes=[])
        model.functions[function.identifier()] = function
        model.graph.opset_imports.setdefault(DOMAIN, 1)
        model.ir_version = max(model.ir_version, _OLDEST_IR)
        return function


def _add_outputs(
    b: Builder, graph: ir.Graph, results: Sequence[ir.Value], inputs: Sequence[ir.Value]
) -> None:
    """Make results the outputs of a graph: an output is computed inside, and is one output only."""
    taken = {*inputs}
    for result in results:
        graph.outputs.append(b.op("Identity", result) if result in taken else result)
        taken.add(result)


def _input(name: str, like: ir.Value, rank: int | None = None) -> ir.Value:
    shape = None if rank is None else ir.Shape([1] * rank)
    return ir.Value(name=name, type=like.type, shape=shape)


def _tensors(shared: Any) -> Iterator[ir.Value]:
    yield from (shared,) if isinstance(shared, ir.Value) else shared


def _names(shared: Any) -> Sequence[str]:
    return ("rate",) if isinstance(shared, ir.Value) else type(shared)._fields
