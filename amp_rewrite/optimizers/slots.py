"""The states that belong to an optimizer: one set per training graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.training.training_graph import GraphValue, State, TrainingGraph

Variable = State | GraphValue | str
"""A variable: a state, an initializer's value or its name."""


class OptimizerStates:
    """Slots, one per variable and slot name, and non-slot states, one per graph and name.

    Attributes:
        optimizer: The optimizer's name: slots are named `<variable>/<optimizer>`.
        graph: The graph that was built on last, or None.
    """

    def __init__(self, optimizer: str) -> None:
        """Begin with nothing."""
        self.optimizer = optimizer
        self.graph: TrainingGraph | None = None
        self._slots: dict[tuple[State, str], State] = {}
        self._others: dict[tuple[TrainingGraph, str], State] = {}

    def variable(self, reference: Variable) -> State | None:
        """Return the variable that a reference denotes; None for a name before there is a graph."""
        if isinstance(reference, State):
            return reference
        graph = reference.graph if isinstance(reference, GraphValue) else self.graph
        return None if graph is None else graph.variable(reference)

    def slot(self, variable: State, name: str) -> State | None:
        """Return a variable's slot, or None if it has none of that name."""
        return self._slots.get((variable, name))

    def add_slot(self, variable: State, name: str, initializer: Any) -> State:
        """Return a variable's slot, which is made if there is none.

        Args:
            variable: The variable.
            name: The slot's name.
            initializer: "zeros", "ones", a number or an array of the variable's shape.

        Raises:
            OptimizerValueError: The initializer does not fit.
        """
        known = self._slots.get((variable, name))
        if known is None:
            initial = initial_array(variable, initializer)
            known = variable.graph.state(f"{variable.name}/{self.optimizer}", initial, "slot")
            self._slots[variable, name] = known
        return known

    def add_other(self, graph: TrainingGraph, name: str, initial: np.ndarray) -> State:
        """Return a non-slot state, which is made if there is none."""
        known = self._others.get((graph, name))
        if known is None:
            known = graph.state(name, initial, "non_slot")
            self._others[graph, name] = known
        return known

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
    """Replace the present values of states.

    Args:
        optimizer: The name that errors show.
        states: What is replaced.
        weights: The new values, in the same order.

    Raises:
        OptimizerValueError: Their number or a shape differs; nothing is replaced then.
    """
    if len(states) != len(weights):
        raise OptimizerValueError(
            "a list of weights of another optimizer",
            where=optimizer,
            found=f"{len(weights)} weights",
            expected=f"{len(states)}",
        )
    for state, weight in zip(states, weights, strict=True):
        if np.shape(weight) != state.shape:
            raise OptimizerValueError(
                "a weight of another shape",
                where=state.name,
                found=np.shape(weight),
                expected=state.shape,
            )
    for state, weight in zip(states, weights, strict=True):
        state.assign(weight)


def initial_array(variable: State, initializer: Any) -> np.ndarray:
    """Return the first value of a slot: float32, or float64 for a float64 variable.

    Raises:
        OptimizerValueError: The initializer is unknown or has another shape than the variable.
    """
    dtype = np.float64 if variable.dtype.itemsize == 8 else np.float32
    number = {"zeros": 0.0, "ones": 1.0}.get(initializer) if isinstance(initializer, str) else None
    if isinstance(initializer, str) and number is None:
        raise OptimizerValueError(
            "unknown initializer", found=repr(initializer), expected="'zeros' or 'ones'"
        )
    array = np.asarray(initializer if number is None else number, dtype)
    if array.shape not in ((), variable.shape):
        raise OptimizerValueError(
            "a slot must have the shape of its variable",
            where=variable.name,
            found=array.shape,
            expected=variable.shape,
        )
    if not array.shape and not array.any():
        return np.zeros(variable.shape, dtype)  # pages that are not touched take no memory
    return np.broadcast_to(array, variable.shape).copy()
