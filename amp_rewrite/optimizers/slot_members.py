"""How users reach the states of an optimizer."""

from __future__ import annotations

from typing import Any

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.optimizers.slots import OptimizerStates, initial_array
from amp_rewrite.optimizers.update_rule import UpdateRule
from amp_rewrite.training.training_graph import GraphValue, State

Variable = State | GraphValue | str
"""A variable: a state, an initializer's value or its name."""


class SlotMembers(UpdateRule):
    """The slots and the non-slot states of an optimizer, by variable and name."""

    def __init__(self, name: str) -> None:
        """Begin without states."""
        self._name = name
        self._states = OptimizerStates()

    def get_slot(self, var: Variable, name: str) -> State | None:
        """Return the slot called `name` of a variable, or None if there is none."""
        variable = self._find(var)
        return None if variable is None else self._states.slot(variable, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots made so far, sorted."""
        return self._states.slot_names()

    def variables(self) -> list[State]:
        """Return slots and non-slot states of the graph built on last, sorted by name."""
        return sorted(self._states.of_graph(), key=lambda state: state.name)

    def add_slot(self, var: Variable, slot_name: str, initializer: Any = "zeros") -> State:
        """Return a slot of a variable, which is made if there is none.

        Args:
            var: The variable.
            slot_name: The slot's name for get_slot.
            initializer: "zeros", "ones", a number or an array of the variable's shape.

        Raises:
            OptimizerValueError: The variable is unknown, or the initializer does not fit.
        """
        variable = self._find(var)
        if variable is None:
            raise OptimizerValueError("no such variable", where=self._name, found=repr(var))
        self._states.graph = self._states.graph or variable.graph
        return self._slot(variable, slot_name, initializer)

    def _slot(self, variable: State, slot: str, initializer: Any = None) -> State:
        known = self._states.slot(variable, slot)
        if known is not None:
            return known
        initial = initial_array(
            variable, self._initial_slot(slot) if initializer is None else initializer
        )
        return self._states.add_slot(variable.graph, variable, slot, initial, self._name)

    def _find(self, var: Variable) -> State | None:
        if isinstance(var, State):
            return var
        graph = var.graph if isinstance(var, GraphValue) else self._states.graph
        return None if graph is None else graph.variable(var)
