"""Which learning rate to begin with."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from amp_rewrite import arguments
from amp_rewrite.errors import DataError, LossScaleError, OptionError
from amp_rewrite.optimizers.learning_rate import LEARNING_RATE
from amp_rewrite.trainer.data.examples import Batch, Examples
from amp_rewrite.trainer.loop.plan import Plan
from amp_rewrite.trainer.loop.steepest_fall import steepest_fall
from amp_rewrite.trainer.session.training_session import TrainingSession
from amp_rewrite.trainer.step.step_info import LOSS

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
    """Train with rates that grow from step to step; the session is as before afterwards.

    Raises:
        OptionError: The rates or the number of steps are impossible, the rate is that of a
            schedule, or the loss is not finite from the first steps on.
    """
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
                mean = loss if not smoothed else _mean(smoothed[-1], loss)
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
    """Refuse a step whose learning rate is that of a schedule, which would multiply each rate.

    Raises:
        OptionError: It is.
    """
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
    """Yield the batches of one epoch after the other, without an end.

    Raises:
        DataError: An epoch has none.
    """
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


def _mean(before: float, loss: float) -> float:
    return _SMOOTHING * before + (1 - _SMOOTHING) * loss


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
