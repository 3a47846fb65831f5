"""Which learning rate to begin with."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.base.printable import one_line
from amp_rewrite.errors import DataError, LossScaleError, OptionError
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.training.data.examples import Batch, Examples
from amp_rewrite.training.optimizers.learning_rate import LEARNING_RATE
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.step_info import LOSS

_SMOOTHING = 0.9
"""What is kept of the mean of the losses before, from step to step."""
_EXPLODED = 4.0
"""How many times the lowest mean a mean is that ends the search."""
_HIGHEST = 1e30
"""The highest rate that can be asked for."""
_LEAST = 10
"""Steps below which nothing is concluded."""

_MOST = 10**6
"""More steps than any search needs."""


@dataclass(frozen=True)
class RateSearch:
    """Losses of steps with growing rates (Smith 2017, https://arxiv.org/abs/1506.01186).

    Attributes:
        rates: The rate of each step.
        losses: Its loss.
        smoothed: The exponential mean of the losses up to it.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(
            self,
            f"suggests {self.suggestion}, of {len(self.rates)} rates from {self.rates[0]:.3g} to "
            f"{self.rates[-1]:.3g}",
        )

    @property
    def suggestion(self) -> float | None:
        """The rate at which the loss falls most steeply over the logarithm of the rate.

        That is before it first rises. None if it falls nowhere clearly: the model is trained
        already, or the batches or the steps are too few.
        """
        step = steepest_fall(self.losses)
        return None if step is None else self.rates[step]


def search_rate(
    session: TrainingSession, data: Examples, plan: Plan, *, low: float, high: float, steps: int
) -> RateSearch:
    """Train with rates that grow from step to step; the session is as before afterwards."""
    rates = _rates(low, high, steps)
    _check_settable(session)
    before = session.state_dict()
    losses: list[float] = []
    smoothed: list[float] = []
    try:
        with closing(_batches(session, data, plan)) as batches:
            for rate, feeds in zip(rates, islice(batches, len(rates)), strict=False):
                session.learning_rate = rate
                loss = _loss(session, feeds)
                mean = loss if not smoothed else _SMOOTHING * smoothed[-1] + (1 - _SMOOTHING) * loss
                if not math.isfinite(mean) or (smoothed and mean > _EXPLODED * min(smoothed)):
                    break
                losses.append(loss)
                smoothed.append(mean)
    finally:
        session.load_state_dict(before)
    if len(losses) < _LEAST:
        raise OptionError(
            "the loss explodes before anything can be concluded",
            found=f"{len(losses)} finite losses, from the rate {low:g} on",
            remedy="begin with a lower rate",
        )
    return RateSearch(tuple(rates[: len(losses)]), tuple(losses), tuple(smoothed))


def _check_settable(session: TrainingSession) -> None:
    """Refuse a step whose learning rate is that of a schedule, which would multiply each rate."""
    info = session.info
    used, state = info.fetches.get(LEARNING_RATE), info.having(LEARNING_RATE)
    if used is not None and state is not None and used != state.name:
        raise OptionError(
            "the learning rate is that of a schedule, which would multiply every rate",
            where=used,
            expected="a step with a constant learning rate",
            remedy="search with a step without schedule and warm-up, and give the schedule what "
            "is found",
        )


def _batches(session: TrainingSession, data: Examples, plan: Plan) -> Generator[Batch]:
    """Yield the batches of one epoch after the other, without an end."""
    for number in count():
        empty = True
        for feeds in data.epoch(
            plan.batch, number=number, seed=plan.seed, drop_last=session.fixed_batch
        ):
            empty = False
            yield feeds
        if empty:
            raise DataError("the data hold no examples", where=data.where)


def _loss(session: TrainingSession, feeds: dict[str, object]) -> float:
    """Return the loss of one step; infinity where the loss scale is given up."""
    try:
        return float(session.run(feeds, LOSS)[LOSS])
    except LossScaleError:
        return math.inf


def _rates(low: float, high: float, steps: int) -> list[float]:
    numbers: list[object] = [low, high]
    real = all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    if not real or not 0 < low < high <= _HIGHEST:
        raise OptionError(
            "impossible rates",
            found=f"{low!r} to {high!r}",
            expected=f"two positive numbers up to {_HIGHEST:g}, the lower one first",
        )
    count = arguments.integer("number of steps", steps, low=_LEAST, high=_MOST)
    return [float(rate) for rate in np.geomspace(low, high, count)]


Array = np.ndarray[Any, Any]

_WIDTH = 6.0
"""The standard deviation of the weights of neighbours, in steps."""
_RISE = 0.25
"""Which share of what the losses have fallen by is a rise that ends the fall."""
_FALL = 0.3
"""Which share of the deepest fall is one that a rise can end; less may be noise."""
_CLEAR = 4.0
"""How many standard errors a slope is that noise does not explain."""


def steepest_fall(losses: Sequence[float]) -> int | None:
    """Return the step at which losses fall most steeply before they first rise.

    A line is fitted to the neighbours of each step, weighted by their distance (local regression:
    W. S. Cleveland, 1979, https://doi.org/10.1080/01621459.1979.10481038), which unlike a running
    mean lags behind at no step. What comes after the first rise is the recovery from rates that
    have spoilt the weights, and tells nothing of a good one.

    Args:
        losses: Those of steps whose rates grow by one factor from each to the next.

    Returns:
        The index of the step; None if the slope there is not clearly below zero.
    """
    means, slopes, errors = _lines(np.asarray(losses, np.float64))
    falling = slopes[: _first_rise(means) + 1]
    steepest = int(np.argmin(falling))
    return steepest if falling[steepest] < -_CLEAR * errors[steepest] else None


def _lines(losses: Array) -> tuple[Array, Array, Array]:
    """Return the lines around every step: height there, slope, and the slope's standard error."""
    steps = np.arange(len(losses))
    distances = steps[None, :] - steps[:, None]
    weights = np.exp(-0.5 * (distances / _WIDTH) ** 2)
    weights /= weights.sum(1, keepdims=True)
    centres, means = (weights * distances).sum(1), weights @ losses
    offsets = distances - centres[:, None]
    spread = (weights * offsets**2).sum(1)
    slopes = (weights * offsets * losses).sum(1) / spread
    residuals = losses - means[:, None] - slopes[:, None] * offsets
    errors = np.sqrt(((weights * offsets * residuals) ** 2).sum(1)) / spread
    return means - slopes * centres, slopes, errors


def _first_rise(means: Array) -> int:
    """Return the step of the lowest mean before the first rise behind a fall worth the name."""
    lowest, whole = 0, means[0] - means.min()
    for step, mean in enumerate(means):
        fallen = means[0] - means[lowest]
        if mean < means[lowest]:
            lowest = step
        elif fallen > _FALL * whole and mean - means[lowest] > _RISE * fallen:
            break
    return lowest
