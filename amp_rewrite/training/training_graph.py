"""What a model becomes while a training step is built on it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.dimensions import forget_unknown
from amp_rewrite.errors import OptionError, UnknownValueError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.part import Part
from amp_rewrite.training.graph_value import GraphValue
from amp_rewrite.training.state import Array, State, StateStore
from amp_rewrite.training.training_mode import turn_on_training_mode
from amp_rewrite.training.weights import (
    lift_constants,
    modernise,
    nodes_before,
    read_small,
    weights_before,
)

__all__ = [
    "GraphValue",
    "State",
    "StateStore",
    "TrainingGraph",
    "training_graph",
    "value",
]

GLOBAL_STEP = "global_step"
_KEY = "amp_rewrite.training"


class TrainingGraph:
    """A model, the states of its training step, and a builder that adds nodes to it.

    Attributes:
        model: The model; building a training step adds nodes to it.
        forward: A copy of the model as it was, for export. Only weights that were Constant nodes,
            or inside a branch of an If, are initializers of its main graph there too.
        builder: Adds the nodes of gradients.
        states: Name -> state, in the order of creation.
        assigned: Non-trainable state -> its next value: the statistics of BatchNormalization.
        loss: What was differentiated last, or None.
        seeds: The values at which backward passes begin.
        gradients: Variable -> the value that carries its gradient, of the last backward pass.
    """

    def __init__(self, model: ir.Model) -> None:
        """Prepare a model for training; use `training_graph` to get the one of a model.

        Raises:
            GradientError: The model's opset is too old and cannot be converted.
        """
        lift_constants(model)
        self.forward = clone(model)
        read_small(model)
        modernise(model)
        forget_unknown(model.graph)
        self.model = model
        self.builder = Builder(model)
        self.states: dict[str, State] = {}
        self.assigned: dict[State, ir.Value] = {}
        self.averaged: dict[ir.Value, ir.Value] = {}
        self.loss: GraphValue | None = None
        self.seeds: list[ir.Value] = []
        self.gradients: dict[str, ir.Value] = {}
        self._weights = set(model.graph.initializers.values())
        self._by_value: dict[ir.Value, State] = {}
        self._scopes: dict[tuple[str, Part], Builder] = {}
        self._names = {str(v.name) for v in _values(model.graph)}
        self._trains = False
        self._global_step: State | None = None

    def turn_on_training_mode(self) -> None:
        """Turn Dropout and BatchNormalization to training, once; gradients need it."""
        if not self._trains:
            self._trains = True
            turn_on_training_mode(self)

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
        name, n = stem, 0
        while name in self._names:
            n += 1
            name = f"{stem}_{n}"
        self._names.add(name)
        return name

    def state(self, name: str, initial: Array, role: str, *, trainable: bool = False) -> State:
        """Add a state.

        Args:
            name: Its name; `_1`, `_2`, ... is appended if that is taken.
            initial: Its value before the first step.
            role: See `State`.
            trainable: See `State`.
        """
        name = self.free_name(name)
        array = np.asarray(initial)
        value = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.tensor(array, name=name),
        )
        self.model.graph.register_initializer(value)
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
        """Return the trainable states: with a loss, the weights that it depends on.

        Args:
            loss: Initializers of the model that this value depends on become variables; None
                asks for the variables there are.
        """
        if loss is None:
            return [state for state in self.states.values() if state.trainable]
        found = weights_before(self.model, loss)
        return [self.track(v, "variable", trainable=True) for v in found if v in self._weights]

    def variable(self, reference: State | GraphValue | ir.Value | str) -> State:
        """Return the variable that a state, a value or a name denotes.

        Raises:
            UnknownValueError: No initializer of the model is meant.
        """
        if isinstance(reference, State):
            found: ir.Value | None = reference.value
        elif isinstance(reference, GraphValue):
            found = reference.value
        elif isinstance(reference, str):
            found = self.value(reference).value
        else:
            found = reference
        if found.graph is not self.model.graph or not found.is_initializer():
            raise UnknownValueError(
                "not a variable of this model",
                where=found.name,
                expected="one of its initializers",
                remedy="load the model once, and take variables from that model",
            )
        state = self.track(found, "variable", trainable=True)
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
            state.name: self.averaged.get(following, following)
            for state, following in self.assigned.items()
            if nodes is None or following.producer() in nodes
        }

    def has(self, name: str) -> bool:
        """Return whether the main graph has a value of that name."""
        return any(v.name == name for v in _values(self.model.graph))

    def add_input(
        self, name: str, dtype: ir.DataType, dims: Sequence[int | ir.SymbolicDim] | None
    ) -> ir.Value:
        """Return a new input of the main graph; the forward model does not get it.

        Args:
            name: Its name, which no value has yet.
            dtype: Its element type.
            dims: Its lengths, or None for an unknown rank.
        """
        self._names.add(name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(dtype),
            shape=None if dims is None else ir.Shape(dims),
        )
        self.model.graph.inputs.append(value)
        return value

    def value(self, name: str) -> GraphValue:
        """Return the value of that name in the main graph.

        Raises:
            UnknownValueError: There is none; the message names similar ones.
        """
        values = {str(v.name): v for v in _values(self.model.graph)}
        if not isinstance(name, str) or name not in values:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            close = difflib.get_close_matches(str(name), values, n=3)
            raise UnknownValueError(
                "the model has no value of this name",
                where=name,
                remedy=f"did you mean {' or '.join(map(repr, close))}?"
                if close
                else f"its outputs are {[str(v.name) for v in self.model.graph.outputs]}",
            )
        return GraphValue(self, values[name])

    def bind(self, store: StateStore | None) -> None:
        """Let states be read from and assigned in a session; None ends that."""
        for state in self.states.values():
            state.store = store


def training_graph(model: ir.Model) -> TrainingGraph:
    """Return the training graph of a model, which is made when it is first asked for.

    Args:
        model: What `amp_rewrite.load` returned; building a training step adds nodes to it.

    Raises:
        GradientError: The model's opset is too old and cannot be converted.
        OptionError: It is no loaded model.
    """
    if not isinstance(model, ir.Model):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "a training step is built on a loaded model",
            found=f"an object of type {type(model).__name__}",
            remedy="load it once with amp_rewrite.load, and pass the same model everywhere",
        )
    known = model.meta.get(_KEY)
    if not isinstance(known, TrainingGraph) or known.model is not model:  # a clone has another
        known = TrainingGraph(model)
        model.meta[_KEY] = known
    return known


def value(model: ir.Model, name: str) -> GraphValue:
    """Return a value of a model by its name: an input, an initializer or the output of a node.

    Args:
        model: What `amp_rewrite.load` returned.
        name: The value's name.

    Raises:
        OptionError: It is no loaded model.
        UnknownValueError: The model has no such value; the message names similar ones.
    """
    return training_graph(model).value(name)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from (v for v in node.outputs if v.name)
