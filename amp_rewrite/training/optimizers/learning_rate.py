"""Learning rates and schedules.

A step's rate is the state `learning_rate` times the schedule's factor at `global_step`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.config import (
    arguments,
    class_of,
    custom_classes,
    mapping,
    restore,
)


class Schedule(check.Checked, ABC):
    """A learning rate as a function of the number of steps done."""

    @property
    def base(self) -> float:
        """The rate that the factor multiplies: the first field, or the base of that schedule."""
        first = getattr(self, fields(self)[0].name)  # pyright: ignore[reportArgumentType] children are dataclasses
        return first.base if isinstance(first, Schedule) else first

    @abstractmethod
    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return the multiple of the base rate after `step` steps: both float32, shape ()."""

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` makes this schedule from."""
        config: dict[str, Any] = {"class_name": type(self).__name__}
        for entry in fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, entry.name)
            config[entry.name] = value.get_config() if isinstance(value, Schedule) else value
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, type[Any]] | None = None
    ) -> Self:
        """Return a schedule made from the result of `get_config`; see `optimizers.get`."""
        settings = mapping(config, cls.__name__, OptimizerTypeError)
        settings = mapping(settings.get("config", settings), cls.__name__, OptimizerTypeError)
        settings.pop("class_name", None)
        restore_rate(settings, custom_objects)
        return cls(**arguments(cls, settings, OptimizerTypeError))


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """From learning_rate to alpha * learning_rate along half a cosine, then constant.

    learning_rate * (alpha + (1 - alpha) * (1 + cos(pi * min(step, decay_steps) / decay_steps)) / 2)
    (I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017,
    https://arxiv.org/abs/1608.03983).
    """

    learning_rate: float = check.field(check.number)
    decay_steps: float = check.field(check.number, low=1)
    alpha: float = check.field(check.number, default=0.0)

    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return alpha + (1 - alpha) * (1 + cos(pi * done)) / 2."""
        done = b.div(b.minimum(step, self.decay_steps), self.decay_steps)
        cosine = b.op("Cos", b.mul(done, math.pi))
        half = (1 - self.alpha) / 2
        return b.add(b.mul(cosine, half), self.alpha + half)


def _rate(name: str, value: Any) -> float | Schedule:
    """Return a rate or a schedule, which may come as its configuration."""
    rate = from_config(value) if isinstance(value, Mapping) else value
    return rate if isinstance(rate, Schedule) else check.number(name, rate)


@dataclass(frozen=True)
class LinearWarmUp(Schedule):
    """Grow linearly over the first steps, then follow a rate or another schedule.

    In the first warm_up_steps: rate * (start_factor + (1 - start_factor) * step / warm_up_steps);
    afterwards the schedule, which counts its steps from there (P. Goyal et al., "Accurate, Large
    Minibatch SGD", 2017, https://arxiv.org/abs/1706.02677).

    Examples:
        >>> rate = amp.optimizers.LinearWarmUp(0.1, warm_up_steps=100)
        >>> optimizer = amp.optimizers.Momentum(rate, 0.9)
    """

    learning_rate: float | Schedule = check.field(_rate)  # noqa: RUF009 a field
    warm_up_steps: int = check.field(check.number, low=1)
    start_factor: float = check.field(check.number, default=0.0, high=1)

    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return the factor of the warm-up times that of what follows."""
        done = b.div(b.minimum(step, self.warm_up_steps), self.warm_up_steps)
        warm = b.add(b.mul(done, 1 - self.start_factor), self.start_factor)
        if not isinstance(self.learning_rate, Schedule):
            return warm
        later = b.maximum(b.sub(step, self.warm_up_steps), 0.0)
        return b.mul(warm, self.learning_rate.factor(b, later))


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """initial_learning_rate * decay_rate ^ (step / decay_steps); staircase rounds the power down.

    Keras's schedule (https://keras.io/api/optimizers/learning_rate_schedules/exponential_decay/),
    and tf.compat.v1.train.exponential_decay.
    """

    initial_learning_rate: float = check.field(check.number)
    decay_steps: float = check.field(check.number, above=True)
    decay_rate: float = check.field(check.number, above=True)
    staircase: bool = check.field(check.flag, default=False)
    name: str | None = None

    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return decay_rate ^ (step / decay_steps)."""
        done = b.div(step, float(self.decay_steps))
        return b.pow(self.decay_rate, b.op("Floor", done) if self.staircase else done)


@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """From initial_learning_rate to end_learning_rate along a power, then constant.

    (initial - end) * (1 - min(step, decay_steps) / decay_steps) ^ power + end; with cycle,
    decay_steps is decay_steps * max(1, ceil(step / decay_steps)) instead of a limit of the step
    (https://keras.io/api/optimizers/learning_rate_schedules/polynomial_decay/).
    """

    initial_learning_rate: float = check.field(check.number, above=True)
    decay_steps: float = check.field(check.number, above=True)
    end_learning_rate: float = check.field(check.number, default=0.0001)
    power: float = check.field(check.number, default=1.0)
    cycle: bool = check.field(check.flag, default=False)
    name: str | None = None

    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return the rate as a share of the initial one."""
        length = float(self.decay_steps)
        if self.cycle:
            cycles = b.maximum(b.op("Ceil", b.div(step, length)), 1.0)
            done = b.div(step, b.mul(cycles, length))
        else:
            done = b.div(b.minimum(step, length), length)
        end = self.end_learning_rate / self.initial_learning_rate
        left = b.maximum(b.sub(1.0, done), 0.0)
        power = left if self.power == 1 else b.pow(left, self.power)
        return b.add(b.mul(power, 1 - end), end)


def _numbers(name: str, values: Any) -> list[float]:
    return [check.number(name, value) for value in check.listed(values, name)]


@dataclass(frozen=True)
class PiecewiseConstantDecay(Schedule):
    """values[0] up to and including step boundaries[0], then values[1] up to boundaries[1], ...

    (https://keras.io/api/optimizers/learning_rate_schedules/piecewise_constant_decay/).
    """

    boundaries: Sequence[float] = check.field(_numbers)
    values: Sequence[float] = check.field(_numbers)
    name: str | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if len(self.values) != len(self.boundaries) + 1:
            raise OptimizerValueError(
                "PiecewiseConstantDecay needs one value more than boundaries",
                found=f"{len(self.boundaries)} boundaries and {len(self.values)} values",
            )
        if any(late <= early for early, late in pairwise(self.boundaries)):
            raise OptimizerValueError("boundaries must grow", found=list(self.boundaries))

    @property
    def base(self) -> float:
        """The rate of the first steps; the largest rate if that is 0."""
        return self.values[0] or max(self.values)

    def factor(self, b: Builder, step: ir.Value) -> ir.Value | float:
        """Return the present value as a share of the base."""
        share = b.constant(np.array(self._share(self.values[-1]), np.float32))
        for boundary, value in zip(
            reversed(self.boundaries), reversed(self.values[:-1]), strict=True
        ):
            share = b.where(b.less_or_equal(step, boundary), self._share(value), share)
        return share

    def _share(self, value: float) -> float:
        return value / self.base if self.base else 0.0


_KINDS = (CosineSchedule, LinearWarmUp, ExponentialDecay, PolynomialDecay, PiecewiseConstantDecay)
_SCHEDULES: dict[str, type[Schedule]] = {kind.__name__: kind for kind in _KINDS}


def from_config(
    config: Mapping[str, Any], custom_objects: Mapping[str, type[Any]] | None = None
) -> Schedule:
    """Return the schedule that `get_config` described; see `optimizers.get`."""
    settings = mapping(config, "schedule", OptimizerTypeError)
    custom = custom_classes(custom_objects, OptimizerTypeError)
    kind = class_of(settings, {**_SCHEDULES, **custom})
    if kind is None:
        raise OptimizerValueError(
            "unknown schedule",
            found=repr(settings.get("class_name")),
            expected=" or ".join(_SCHEDULES),
        )
    return restore(kind, settings, custom)


def restore_rate(
    settings: dict[Any, Any], custom_objects: Mapping[str, type[Any]] | None = None
) -> None:
    """Replace the configuration of a schedule as the learning rate of settings by the schedule."""
    if isinstance(settings.get("learning_rate"), Mapping):
        settings["learning_rate"] = from_config(settings["learning_rate"], custom_objects)


LEARNING_RATE = "learning_rate"

Rate = float | Schedule
"""A learning rate: a number or a schedule."""


class LearningRate:
    """A learning rate that can be set between steps: one state per training graph."""

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


def _parts(value: Any) -> tuple[float, Schedule | None]:
    """Return a rate's number and its schedule, which may come as its configuration."""
    if isinstance(value, Mapping):
        value = from_config(value)
    schedule = value if isinstance(value, Schedule) else None
    return check.number(LEARNING_RATE, value if schedule is None else schedule.base), schedule
