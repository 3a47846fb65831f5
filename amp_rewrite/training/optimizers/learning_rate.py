"""The learning rate of an optimizer: a number or a schedule, and the states that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import schedules

LEARNING_RATE = "learning_rate"

Rate = float | schedules.Schedule
"""A learning rate: a number or a schedule."""


class LearningRate:
    """A learning rate that can be set between steps: one state per training graph.

    `base` is the rate that new states begin with; the factor of `schedule`, if any, multiplies it.
    """

    def __init__(self, optimizer: str, value: Rate, state: str = LEARNING_RATE) -> None:
        """Keep a rate; errors name the optimizer, `state` is the name of the states."""
        self._optimizer, self._state = optimizer, state
        self._states: dict[TrainingGraph, State] = {}
        self.base, self.schedule = _parts(value)

    def read(self) -> Any:
        """Return the present rate, or the schedule."""
        if self.schedule is not None:
            return self.schedule
        return float(list(self._states.values())[-1].read()) if self._states else self.base

    def assign(self, value: Rate) -> None:
        """Set the rate from the next step on; a present schedule continues from it."""
        base, schedule = _parts(value)
        if self._states and schedule is not None:
            raise OptimizerValueError(
                "a schedule is part of the step, which has been built",
                where=self._optimizer,
                expected="a number",
                remedy="make another optimizer with this schedule",
            )
        self.base, self.schedule = base, schedule or self.schedule
        for state in self._states.values():
            state.assign(base)

    def add_to(self, graph: TrainingGraph, b: Builder, counter: State) -> ir.Value:
        """Return the learning rate of a step, float32, shape (): the state, times the schedule."""
        if graph not in self._states:
            initial = np.array(self.base, np.float32)
            self._states[graph] = graph.state(self._state, initial, LEARNING_RATE)
        state = self._states[graph]
        if self.schedule is None:
            return state.value
        factor = self.schedule.factor(b, b.cast(counter.value, ir.DataType.FLOAT))
        return b.mul(state.value, factor)


class MultipliedRate(LearningRate):
    """The learning rate of another optimizer, schedule included, times a number."""

    def __init__(self, rate: LearningRate, multiplier: float) -> None:
        """Keep the rate, which is shared, and the multiplier: at least 0."""
        self._rate, self._multiplier = rate, check.number("rate_multiplier", multiplier)

    def read(self) -> Any:
        """Return the present rate; a schedule without the multiplier."""
        rate = self._rate.read()
        return rate * self._multiplier if isinstance(rate, float) else rate

    def assign(self, value: Rate) -> None:
        """Refuse: the rate is the other optimizer's."""
        raise OptimizerValueError(
            "the learning rate of a group with a multiplier is that of the optimizer",
            found=repr(value),
            remedy="set the optimizer's learning rate, or give the group one of its own",
        )

    def add_to(self, graph: TrainingGraph, b: Builder, counter: State) -> ir.Value:
        """Return the rate of a step; see `LearningRate.add_to`."""
        return b.mul(self._rate.add_to(graph, b, counter), self._multiplier)


def _parts(value: Any) -> tuple[float, schedules.Schedule | None]:
    """Return a rate's number and its schedule, which may come as its configuration."""
    if isinstance(value, Mapping):
        value = schedules.from_config(value)
    schedule = value if isinstance(value, schedules.Schedule) else None
    return check.number(LEARNING_RATE, value if schedule is None else schedule.base), schedule
