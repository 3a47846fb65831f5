"""Read and change the states of a session between steps, and diagnose one."""

from __future__ import annotations

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError, OptionError, RunError
from amp_rewrite.runtimes.ort.ort_values import Array
from amp_rewrite.training.diagnosis.diagnose import diagnose
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis
from amp_rewrite.training.optimizers.gradient_accumulation import ACCUMULATOR
from amp_rewrite.training.session.feeds import Feeds, Inputs, as_feeds, on_host
from amp_rewrite.training.session.program_cache import ProgramCache
from amp_rewrite.training.session.states import States
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StateInfo, StepInfo


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
        expected = "a finite number of at least 0"
        rate = arguments.number("learning rate", value, low=0, high=FLOAT32.max, expected=expected)
        self.assign_state(self._learning_rate().name, np.asarray(rate))

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
        """Replace one state tensor between two steps; checkpoints keep it.

        `learning_rate/<group>` is the rate of a group, which a schedule multiplies. Momentum,
        betas, epsilons, weight decays and the numbers of a schedule are constants of the step.

        Raises:
            OptionError: The step has no such state, or shape or kind differ.
        """
        self.check_open()
        self._states.write(name, value)

    def check_open(self) -> None:
        """Refuse to go on after the session is closed."""
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
