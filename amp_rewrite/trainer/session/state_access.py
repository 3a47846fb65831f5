"""Read and change the states of a session between steps."""

from __future__ import annotations

import numbers

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.ort.ort_values import Array
from amp_rewrite.trainer.session.states import States
from amp_rewrite.trainer.step.step_info import StateInfo, StepInfo


class StateAccess:
    """The present states of a step, as long as its session is open.

    Attributes:
        info: The description of the step.
    """

    info: StepInfo
    _states: States
    _open: bool

    def state_dict(self) -> dict[str, Array]:
        """Return a copy of every state tensor, by name."""
        self.check_open()
        return self._states.read_all()

    @property
    def learning_rate(self) -> float:
        """The learning rate; settable between steps."""
        return float(self.read_state(self._learning_rate().name))

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        state = self._learning_rate()
        number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
        if not number or not 0 <= value <= FLOAT32.max:  # false for NaN too
            raise OptionError(
                "the learning rate must be finite and not negative",
                found=repr(value),
                remedy="set a number such as 1e-3",
            )
        self.assign_state(state.name, np.asarray(value))

    @property
    def global_step(self) -> int | None:
        """How many steps were applied, or None if the step does not count them."""
        state = self.info.having("global_step")
        return None if state is None else int(self.read_state(state.name))

    def read_state(self, name: str) -> Array:
        """Return a copy of one state tensor.

        Raises:
            OptionError: The step has no such state.
        """
        self.check_open()
        return self._states.read(name)

    def assign_state(self, name: str, value: Array) -> None:
        """Replace one state tensor between two steps.

        Raises:
            OptionError: The step has no such state, the value is no tensor of numbers, or shape or
                kind differ.
        """
        self.check_open()
        self._states.write(name, value)

    def check_open(self) -> None:
        """Refuse to go on after the session is closed.

        Raises:
            RunError: It is closed.
        """
        if not self._open:
            raise RunError("the session is closed", remedy="make a new TrainingSession")

    def _learning_rate(self) -> StateInfo:
        self.check_open()
        state = self.info.having("learning_rate")
        if state is None:
            raise OptionError(
                "the step has no learning rate that could be set",
                found=", ".join(sorted({s.role for s in self.info.states})) or "no state",
                remedy="build it with an optimizer that has one and no schedule",
            )
        return state
