"""Read and change the states of a session between steps, and diagnose one."""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError, OptionError, RunError
from amp_rewrite.runtimes.ort.ort_values import Array
from amp_rewrite.training.diagnosis.diagnose import diagnose
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis
from amp_rewrite.training.graph.training_graph import SCALE_ROLES
from amp_rewrite.training.optimizers.gradient_accumulation import ACCUMULATOR
from amp_rewrite.training.optimizers.learning_rate import LEARNING_RATE
from amp_rewrite.training.session.feeds import Feeds, Inputs, as_feeds, on_host
from amp_rewrite.training.session.program_cache import ProgramCache
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

_WHOLE = ("global_step", *SCALE_ROLES[1:])
"""Roles of states that count."""

_SETTABLE = (LEARNING_RATE, SCALE_ROLES[0], *_WHOLE)
"""Roles of states that are numbers which users may want to change."""


class Inspection:
    """The present states of a step, as long as its session is open.

    Attributes:
        info: The description of the step.
    """

    info: StepInfo
    _states: States
    _open: bool
    _step: Step
    _programs: ProgramCache
    _inputs: Inputs

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
        self.set(self._learning_rate().name, value)

    @property
    def settings(self) -> dict[str, Any]:
        """What `set` can change: learning rates, counters and the loss scale, by their names."""
        states = [state for state in self.info.states if state.role in _SETTABLE]
        return {state.name: self.read_state(state.name).item() for state in states}

    def set(self, name: str, value: float) -> None:
        """Change a number that the step reads, from the next step on; checkpoints keep it.

        `learning_rate` is the factor of a schedule, and `learning_rate/<group>` that of a group.
        Momentum, betas, epsilons, weight decays and the numbers of a schedule are constants.

        Args:
            name: One of `settings`.
            value: The number.

        Raises:
            OptionError: The step has no such number, it is a constant, or the value is impossible.
        """
        state = self._setting(arguments.text("name", name, what="the name of a number"))
        whole = state.role in _WHOLE
        low = 0.0 if whole or state.role == LEARNING_RATE else FLOAT32.smallest_normal
        expected = f"{'an integer' if whole else 'a finite number'} of at least {low:g}"
        number = arguments.number(name, value, low=low, high=FLOAT32.max, expected=expected)
        if whole and number != int(number):
            raise OptionError(f"impossible {name}", found=repr(value), expected=expected)
        self.assign_state(name, np.asarray(int(number) if whole else number))

    @property
    def global_step(self) -> int | None:
        """How many steps were applied, or None if the step does not count them."""
        state = self.info.having("global_step")
        return None if state is None else int(self.read_state(state.name))

    def read_state(self, name: str) -> Array:
        """Return a copy of one state tensor."""
        self.check_open()
        return self._states.read(name)

    def assign_state(self, name: str, value: Array) -> None:
        """Replace one state tensor between two steps.

        Raises:
            OptionError: The step has no such state, or shape or kind differ.
        """
        self.check_open()
        self._states.write(name, value)

    def check_open(self) -> None:
        """Refuse to go on after the session is closed."""
        if not self._open:
            raise RunError("the session is closed", remedy="make a new TrainingSession")

    def _setting(self, name: str) -> StateInfo:
        """Return the state that holds a number that can be set."""
        self.check_open()
        states = {s.name: s for s in self.info.states if s.role in _SETTABLE}
        if name in states:
            return states[name]
        others = {s.name for s in self.info.states} - states.keys()
        raise OptionError(
            f"{name!r} is not a number that can be set between steps",
            expected=", ".join(states) or "nothing: the step has no such state",
            remedy="use assign_state"
            if name in others
            else "momentum, betas, decays and schedules are constants of a step: save a "
            "checkpoint, build the step with the other value, and restore",
        )

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

    def diagnose(self, feeds: Feeds, *, last: bool = False) -> Diagnosis:
        """Run a batch once more, on the CPU, and say what is wrong with it; no state changes.

        Every value of the step is looked at: the first that is not finite is named, and how much
        underflow takes from the gradients of each layer. A step in low precision is emulated, and
        compared with float32. Gradients that other batches have left for an update count as zero.

        Args:
            feeds: As for `run`.
            last: Begin with the states from which the last `run` began.
        """
        self.check_open()
        last = arguments.switch("last", last)
        fed_by_user = as_feeds(feeds)
        fed = self._inputs.check(fed_by_user, frozenset(self.info.inputs).intersection(fed_by_user))
        states = self._states.read_all(other=last)
        for state in self.info.states:
            if state.role == ACCUMULATOR:
                states[state.name] = np.zeros_like(states[state.name])
        return diagnose(
            self._step, states, {n: on_host(f) for n, f in fed.items()}, self._programs.sums
        )

    def cause(self, feeds: Feeds) -> str | None:
        """Say what was not finite in the last run, in words; None if that cannot be found.

        Args:
            feeds: The feeds of that run.
        """
        try:
            diagnosis = self.diagnose(feeds, last=True)
        except AmpError:  # the error that it is a part of says more
            return None
        return None if diagnosis.finite else diagnosis.text()
