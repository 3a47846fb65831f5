"""The graph on which a training step is built: a copy of a model, its values and states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.hints import Hinted
from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.errors import OptimizerTypeError, OptionError, UnknownValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import dims, forget_unknown, hold, is_float, type_of
from amp_rewrite.grad.prepare import modernise, prepare
from amp_rewrite.graph.metadata_keys import TRAINING_KEY
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.formula_constants import formula_constants
from amp_rewrite.training.graph.replicas import Groups
from amp_rewrite.training.graph.value_arithmetic import Arithmetic, numbers_of
from amp_rewrite.training.graph.weights import (
    constant_nodes,
    lifted,
    nodes_before,
    read_small,
    weights_before,
)

Array = np.ndarray[Any, Any]

NO_NUMBERS = "cOSUMm"
"""numpy's kinds of complex numbers, objects, texts and times."""


def assigned(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> Array:
    """Return a value as an array of a state's type."""
    expected = f"{dtype} {list(shape)}"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of different lengths, a device
        raise _no_tensor(where, error, expected) from error
    if array.dtype.kind in NO_NUMBERS:
        raise _no_tensor(where, f"{array.dtype} {list(array.shape)}", expected)
    if array.shape != shape:
        raise OptionError(
            "a state tensor cannot take a value of another shape",
            where=where,
            found=array.shape,
            expected=shape,
        )
    if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise OptionError(
            "a state cannot take numbers of another kind",
            where=where,
            found=array.dtype,
            expected=dtype,
            remedy=f"convert them, for example with .astype('{dtype}')",
        )
    return np.array(array, dtype, order="C")


def _no_tensor(where: str, content: object, expected: str) -> OptionError:
    return OptionError(
        "a state cannot take what is not a tensor of numbers",
        where=where,
        found=content,
        expected=expected,
        remedy="pass a numpy array",
    )


GLOBAL_STEP = "global_step"

ROLES = ("variable", "slot", "global_step", "learning_rate", "statistic", "non_slot")
"""The roles that optimizers give; other rooms add their own."""

SCALE_ROLES = (
    *("loss_scale", "good_steps", "skipped_steps", "consecutive_skips"),
    "hysteresis_left",
)
"""The roles of the states of a loss scale."""


class StateStore(Protocol):
    """Where state tensors live while training runs: a session."""

    def read_state(self, name: str) -> Array:
        """Return the present value of a state tensor."""
        ...

    def assign_state(self, name: str, value: Array) -> None:
        """Replace the present value of a state tensor."""
        ...


@dataclass(eq=False)
class State:
    """A tensor that one training step reads and the next one finds changed.

    Attributes:
        name: Its name in state dicts and checkpoints.
        value: What nodes of the training graph read: an initializer of it.
        initial: The value before the first step.
        role: What it is; see ROLES.
        trainable: Whether an optimizer updates it by a gradient.
        constraint: A function from an updated value, a GraphValue, to the value that is kept, or
            None. Set it before gradients are applied.
        store: The session that holds the present value, or None if there is none.
        kept: Whether every step of the graph has it, updated or not: users have added it.
    """

    graph: TrainingGraph = field(repr=False)
    name: str
    value: ir.Value = field(repr=False)
    initial: Array | ir.TensorProtocol = field(repr=False)
    role: str
    trainable: bool = False
    constraint: Callable[[GraphValue], GraphValue] | None = field(default=None, repr=False)
    store: StateStore | None = field(default=None, repr=False)
    kept: bool = field(default=False, repr=False)

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        if isinstance(self.initial, np.ndarray):
            return ir.DataType.from_numpy(self.initial.dtype)
        return self.initial.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        if isinstance(self.initial, np.ndarray):
            return self.initial.shape
        return tuple(int(d) for d in self.initial.shape.numpy())

    def read(self) -> Array:
        """Return the present value: the session's, else the initial one."""
        if self.store is not None:
            return self.store.read_state(self.name)
        initial = self.initial
        return initial if isinstance(initial, np.ndarray) else np.asarray(initial.numpy())

    def numpy(self) -> Array:
        """Return the present value: the name that TensorFlow and Keras have for `read`."""
        return self.read()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the present value for numpy."""
        return np.array(self.read(), dtype, copy=copy is not False)

    def __int__(self) -> int:
        """Return the present number of a scalar, such as `optimizer.iterations`."""
        return int(self.read())

    def __float__(self) -> float:
        """Return the present number of a scalar."""
        return float(self.read())

    def assign(self, value: Any) -> None:
        """Replace the present value, and the initial one of sessions to come."""
        array = assigned(value, self.dtype.numpy(), self.shape, self.name)
        self.initial = array
        self.value.const_value = ir.tensor(array, dtype=self.dtype, name=self.value.name)
        if self.store is not None:
            self.store.assign_state(self.name, array)


@dataclass(frozen=True, eq=False)
class GraphValue(Hinted, Arithmetic):
    """A value of a graph on which a training step is being built.

    Python's arithmetic on it, with another value of the graph, a number or an array, adds nodes to
    the graph; so do its methods, which are named as those of numpy.

    Attributes:
        graph: The training graph.
        value: The value inside its model.
    """

    graph: TrainingGraph = field(repr=False)
    value: ir.Value

    @property
    def name(self) -> str:
        """The value's name in the graph."""
        return str(self.value.name)

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        return type_of(self.value)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The lengths of the axes, None where unknown; None if the rank is unknown."""
        return dims(self.value)

    @property
    def _builder(self) -> Builder:
        return self.graph.scoped("arithmetic", Part.ARITHMETIC)

    def _with(self, value: ir.Value) -> GraphValue:
        return GraphValue(self.graph, value)

    def _operand(self, other: Any) -> ir.Value:
        if not isinstance(other, GraphValue):
            return self._builder.constant(numbers_of(other, self.name), self.dtype)
        if other.graph is not self.graph:
            raise OptionError(
                "values of two models cannot meet in one operation",
                where=self.name,
                found=f"a value {other.name!r} of another model",
            )
        return other.value


class TrainingGraph:
    """A copy of a model to which a training step adds nodes, and the states of that step.

    Attributes:
        source: The model that it is a copy of, which is never changed.
        model: The copy, at an opset that gradients know. Weights that were Constant nodes, or
            inside an If, a Loop or a Scan, are initializers of its main graph.
        builder: Adds the nodes of gradients.
        states: Name -> state, in the order of creation.
        assigned: Non-trainable state -> its next value: the statistics of BatchNormalization.
        averaged: Such a next value -> groups of shards -> its mean over them, which is that of the
            mean over the groups before.
        loss: What was differentiated last, or None.
        seeds: The values at which backward passes begin.
        gradients: Variable -> the value that carries its gradient, of the last backward pass.
        trains: Whether gradients were computed, so that what is trained is in training mode.
        trained: The weights of which gradients were computed.
        in_training_mode: The Dropout and BatchNormalization nodes that are.
        asked: Variable -> whether users asked to freeze it.
        train_statistics: See `freeze`.
    """

    def __init__(self, source: ir.Model) -> None:
        """Prepare a copy of a model; use `training_graph` to get the one of a model."""
        model = lifted(source)
        read_small(model)
        modernise(model)
        forget_unknown(model.graph)
        prepare(model)
        self.source, self.model = source, model
        self.builder = Builder(model)
        self.states: dict[str, State] = {}
        self.assigned: dict[State, ir.Value] = {}
        self.averaged: dict[ir.Value, dict[Groups, ir.Value]] = {}
        self.loss: GraphValue | None = None
        self.seeds: list[ir.Value] = []
        self.gradients: dict[str, ir.Value] = {}
        self._weights = set(model.graph.initializers.values())
        self._by_value: dict[ir.Value, State] = {}
        self._scopes: dict[tuple[str, Part], Builder] = {}
        self._names = FreeNames(str(v.name) for v in _values(model.graph))
        self.trains = False
        self.trained: set[ir.Value] = set()
        self.in_training_mode: set[ir.Node] = set()
        self.asked: dict[str, bool] = {}
        self.train_statistics: bool | None = None
        self._global_step: State | None = None

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled, in an optimizer that has built a step for example."""
        raise OptimizerTypeError(
            "what has built a step cannot be copied or pickled",
            found="a training graph, which holds the model and its states",
            remedy="make another optimizer by from_config(get_config()), and save states with "
            "TrainingSession.save",
        )

    def forward(self) -> ir.Model:
        """Return a copy of the model as it was loaded, with its weights as in `model`."""
        return lifted(self.source)

    def scoped(self, scope: str, part: Part) -> Builder:
        """Return the builder whose nodes are named `<scope>/...` and belong to a part."""
        key = scope, part
        if key not in self._scopes:
            self._scopes[key] = Builder(self.model, scope=scope, part=part)
        return self._scopes[key]

    def forget_shapes(self) -> None:
        """Let no builder use what it has computed before, which has moved into a subgraph."""
        for builder in (self.builder, *self._scopes.values()):
            builder.reset()

    def free_name(self, stem: str) -> str:
        """Return `stem`, or `<stem>_1`, `<stem>_2`, ... if it is taken; take it."""
        return self._names.take(stem)

    def state(self, name: str, initial: Array, role: str, *, trainable: bool = False) -> State:
        """Add a state; `_1`, `_2`, ... is appended to a name that is taken."""
        name = self.free_name(name)
        array = np.asarray(initial)
        value = hold(self.model.graph, name, array)
        state = State(self, name, value, array, role, trainable)
        self.states[name] = state
        self._by_value[value] = state
        return state

    def track(self, value: ir.Value, role: str, *, trainable: bool = False) -> State:
        """Return the state of an initializer, which becomes one if it is none yet."""
        state = self._by_value.get(value)
        if state is None:
            tensor = value.const_value
            assert tensor is not None, "an initializer has a value"
            state = State(self, str(value.name), value, tensor, role, trainable)
            self.states[state.name] = state
            self._by_value[value] = state
        return state

    def variables(self, loss: ir.Value | None = None) -> list[State]:
        """Return the trainable states; with a loss, the weights before it that are not frozen."""
        if loss is None:
            return [state for state in self.states.values() if state.trainable]
        return [state for state in self.weights(loss) if not self.is_frozen(state.name)]

    def weights(self, loss: ir.Value | None = None) -> list[State]:
        """Return the states of all weights, frozen or not; with a loss, of those before it."""
        values = weights_before(self.model, loss)
        return [
            self.track(v, "variable", trainable=not self.is_frozen(str(v.name)))
            for v in values
            if v in self._weights
        ]

    def is_weight(self, value: ir.Value) -> bool:
        """Return whether a value is a floating-point initializer of the model."""
        return value in self._weights and is_float(value)

    def is_frozen(self, name: str) -> bool:
        """Return whether a variable is left out unless a `var_list` names it."""
        return self.asked.get(name, name in self.constants)

    @cached_property
    def constants(self) -> frozenset[str]:
        """The weights that are constants of formulas; see `formula_constants`."""
        weights = [v for v in self.model.graph.initializers.values() if self.is_weight(v)]
        constants = formula_constants(weights, constant_nodes(self.source))
        return frozenset(str(v.name) for v in constants)

    def variable(self, reference: State | GraphValue | ir.Value | str) -> State:
        """Return the variable that a state, a value or a name denotes."""
        denoted = self.value(reference) if isinstance(reference, str) else reference
        value = denoted.value if isinstance(denoted, State | GraphValue) else denoted
        if not isinstance(value, ir.Value):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise UnknownValueError(
                "not a variable",
                found=f"an object of type {type(reference).__name__}",
                expected="a state, a value of the model, or a name",
            )
        if value.graph is self.source.graph:
            value = self.value(str(value.name)).value
        if value.graph is not self.model.graph or not value.is_initializer():
            raise UnknownValueError(
                "not a variable of this model",
                where=value.name,
                expected="one of its initializers",
                remedy="load the model once, and take variables from that model",
            )
        state = self.track(value, "variable", trainable=True)
        state.trainable = True
        return state

    def global_step(self) -> State:
        """Return the int64 scalar that counts steps; it is made when it is first asked for."""
        if self._global_step is None:
            self._global_step = self.state(GLOBAL_STEP, np.array(0, np.int64), "global_step")
        return self._global_step

    def statistics(self, loss: ir.Value | None) -> dict[str, ir.Value]:
        """Return state name -> next value of the statistics, of those before a loss if given."""
        nodes = None if loss is None else set(nodes_before(self.model.graph, loss))
        return {
            state.name: self.averaged_of(following)
            for state, following in self.assigned.items()
            if nodes is None or following.producer() in nodes
        }

    def averaged_of(self, following: ir.Value) -> ir.Value:
        """Return the last mean over shards of a statistic's next value; itself if there is none."""
        return next(reversed(self.averaged.get(following, {}).values()), following)

    def has(self, name: str) -> bool:
        """Return whether the main graph has a value of that name."""
        return any(v.name == name for v in _values(self.model.graph))

    def add_input(
        self, name: str, dtype: ir.DataType, dims: Sequence[int | ir.SymbolicDim] | None
    ) -> ir.Value:
        """Return a new input of the main graph, which the forward model does not get."""
        self._names.add(name)
        value = ir.Value(
            name=name, type=ir.TensorType(dtype), shape=None if dims is None else ir.Shape(dims)
        )
        self.model.graph.inputs.append(value)
        return value

    def value(self, name: str) -> GraphValue:
        """Return the value of that name in the main graph."""
        values = {str(v.name): v for v in _values(self.model.graph)}
        if not isinstance(name, str) or name not in values:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            outputs = f"its outputs are {[str(v.name) for v in self.model.graph.outputs]}"
            raise UnknownValueError(
                "the model has no value of this name",
                where=name,
                remedy=did_you_mean(str(name), values) or outputs,
            )
        return GraphValue(self, values[name])


def training_graph(model: ir.Model) -> TrainingGraph:
    """Make a model trainable: return its training graph, which is made once.

    It is a copy, to which nodes are added; the model must not change while it is trained.
    """
    if not isinstance(model, ir.Model):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "a training step is built on a loaded model",
            found=f"an object of type {type(model).__name__}",
            remedy="load it once with amp_rewrite.load, and pass the same model everywhere",
        )
    stored = model.meta.get(TRAINING_KEY)
    if isinstance(stored, TrainingGraph) and (model is stored.source or model is stored.model):
        return stored  # a clone has another
    training = TrainingGraph(model)
    model.meta[TRAINING_KEY] = training.model.meta[TRAINING_KEY] = training
    return training


def value(model: ir.Model, name: str) -> GraphValue:
    """Return a value of a model's training graph: an input, an initializer or a node's output.

    Args:
        model: A loaded model; not changed.
        name: The value's name.

    Raises:
        GradientError: The model's opset is too old and cannot be converted.
        OptionError: It is not a loaded model.
        UnknownValueError: The model has no such value; the message names similar ones.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = (amp.value(model, "logits") ** 2).mean()
        >>> train_op = amp.optimizers.GradientDescent(0.1).minimize(loss)
    """
    return training_graph(model).value(name)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from (v for v in node.outputs if v.name)
