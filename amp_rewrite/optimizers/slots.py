"""The states that belong to an optimizer: one set per training graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.training.training_graph import State, TrainingGraph


class OptimizerStates:
    """Slots, one per variable and slot name, and non-slot states, one per graph and name.

    Attributes:
        graph: The graph that was built on last, or None.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.graph: TrainingGraph | None = None
        self._slots: dict[tuple[State, str], State] = {}
        self._others: dict[tuple[TrainingGraph, str], State] = {}

    def slot(self, variable: State, name: str) -> State | None:
        """Return a variable's slot, or None if it has none of that name."""
        return self._slots.get((variable, name))

    def add_slot(
        self, graph: TrainingGraph, variable: State, name: str, initial: np.ndarray, optimizer: str
    ) -> State:
        """Return a variable's slot; if there is none, make `<variable>/<optimizer>`."""
        known = self._slots.get((variable, name))
        if known is None:
            known = graph.state(f"{variable.name}/{optimizer}", initial, "slot")
            self._slots[variable, name] = known
        return known

    def other(self, graph: TrainingGraph, name: str) -> State | None:
        """Return a non-slot state, or None."""
        return self._others.get((graph, name))

    def add_other(
        self, graph: TrainingGraph, name: str, initial: np.ndarray, role: str = "non_slot"
    ) -> State:
        """Return a non-slot state; make it if there is none."""
        known = self._others.get((graph, name))
        if known is None:
            known = graph.state(name, initial, role)
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
        return [s for s in self.graph.states.values() if id(s) in own and s.role != "learning_rate"]

    def rates(self) -> list[State]:
        """Return the learning rates of every graph."""
        return [s for s in self._others.values() if s.role == "learning_rate"]


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
