"""The states that belong to an optimizer: one set per training graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.graph.training_graph import (
    NO_NUMBERS,
    GraphValue,
    State,
    TrainingGraph,
    assigned,
)
from amp_rewrite.training.optimizers import argument_checks as check

Variable = State | GraphValue | str
"""A variable: a state, an initializer's value or its name."""
VarList = Variable | Iterable[Any] | Callable[[], Any] | None
"""Variables: one, a list that may hold lists, or a function that returns them; None is all."""


class OptimizerStates:
    """Slots, one per variable and slot name, and non-slot states, one per graph and name."""

    def __init__(self, optimizer: str) -> None:
        """Begin without states, given the optimizer's name."""
        self.optimizer = optimizer
        self.graph: TrainingGraph | None = None  # that was built on last
        self.counter: State | None = None
        self.given_counter: Variable | None = None  # the user's
        self.built = False  # whether there is a step
        self._slots: dict[tuple[State, str], State] = {}
        self._others: dict[tuple[TrainingGraph, str], State] = {}

    def variable(self, reference: Variable) -> State | None:
        """Return the variable that a reference means; None for a name before there is a graph."""
        if isinstance(reference, State):
            return reference
        graph = reference.graph if isinstance(reference, GraphValue) else self.graph
        return None if graph is None else graph.variable(reference)

    def slot(self, variable: State, name: str) -> State | None:
        """Return a variable's slot, or None if it has none of that name."""
        return self._slots.get((variable, name))

    def add_slot(
        self, variable: State, name: str, initializer: Any, *, kept: bool = False
    ) -> State:
        """Return a variable's slot, made if missing; if `kept`, steps have it without update."""
        slot = self._slots.get((variable, name))
        if slot is None:
            wide = np.float64 if variable.dtype.itemsize == 8 else np.float32
            initial = filled(variable.name, variable.shape, wide, initializer)
            slot = variable.graph.state(f"{variable.name}/{self.optimizer}", initial, "slot")
            self._slots[variable, name] = slot
        slot.kept |= kept
        return slot

    def add_other(self, graph: TrainingGraph, name: str, initial: np.ndarray) -> State:
        """Return a non-slot state, which is made if there is none."""
        state = self._others.get((graph, name))
        if state is None:
            state = graph.state(name, initial, "non_slot")
            self._others[graph, name] = state
        return state

    def add_weight(
        self, name: str, shape: Sequence[int], dtype: Any, initializer: Any, *, trainable: bool
    ) -> State:
        """Add a state that belongs to no variable; see `Optimizer.add_weight`."""
        if self.graph is None:
            raise OptimizerValueError(
                "no model is known to which a weight could be added",
                where=self.optimizer,
                remedy="call compute_gradients or add_slot first",
            )
        initial = filled(name, shape, dtype, initializer)
        state = self.graph.state(name, initial, "non_slot", trainable=trainable)
        state.kept = True
        self._others[self.graph, state.name] = state
        return state

    def slot_names(self) -> list[str]:
        """Return the names of slots, sorted, each once."""
        return sorted({name for _, name in self._slots})

    def of_graph(self) -> list[State]:
        """Return slots and non-slot states of the graph built on last, in order of creation."""
        if self.graph is None:
            return []
        own = {id(s) for s in (*self._slots.values(), *self._others.values())}
        return [s for s in self.graph.states.values() if id(s) in own]


def assign_all(optimizer: str, states: Sequence[State], weights: Sequence[Any]) -> None:
    """Replace the present values of states, or none of them if a shape differs."""
    weights = check.listed(weights, "weights")
    if len(states) != len(weights):
        raise OptimizerValueError(
            "a list of weights of another optimizer",
            where=optimizer,
            found=f"{len(weights)} weights",
            expected=f"{len(states)}",
        )
    for state, weight in zip(states, weights, strict=True):
        try:
            shape: object = np.shape(weight)
        except ValueError:
            shape = "lists of different lengths"
        if shape != state.shape:
            raise OptimizerValueError(
                "a weight of another shape", where=state.name, found=shape, expected=state.shape
            )
    arrays = [
        assigned(weight, state.dtype.numpy(), state.shape, state.name)
        for state, weight in zip(states, weights, strict=True)
    ]
    for state, array in zip(states, arrays, strict=True):
        state.assign(array)


def filled(name: str, shape: Sequence[int], dtype: Any, initializer: Any) -> np.ndarray:
    """Return the first value of a weight; see `Optimizer.add_weight`."""
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptimizerTypeError("a weight needs a name", found=repr(name))
    try:
        kind = np.dtype(np.float32 if dtype is None else dtype)
        ir.DataType.from_numpy(kind)
        lengths = tuple(operator.index(length) for length in shape)
    except (TypeError, UnicodeEncodeError) as error:
        raise OptimizerTypeError(
            "not the shape and the type of a weight", where=name, found=error
        ) from error
    words = {"zeros": 0.0, "ones": 1.0}
    if isinstance(initializer, str) and initializer not in words:
        raise OptimizerValueError(
            "unknown initializer", found=repr(initializer), expected="'zeros' or 'ones'"
        )
    try:
        content = initializer(lengths, kind) if callable(initializer) else initializer
        array = np.asarray(words[content] if isinstance(content, str) else content)
        if array.dtype.kind not in NO_NUMBERS:  # None, which numpy takes for NaN, is among them
            array = array.astype(kind)
            if not array.shape and not array.any():
                return np.zeros(lengths, kind)  # pages that are not touched take no memory
            return np.broadcast_to(array, lengths).copy()
        misfit: object = f"{array.dtype} {list(array.shape)}"
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        misfit = error
    raise OptimizerValueError(
        "an initializer that does not fit", where=name, found=misfit, expected=list(lengths)
    )
