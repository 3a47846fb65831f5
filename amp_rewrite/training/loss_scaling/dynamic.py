"""A loss scale that follows the gradients."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.loss_scaling.loss_scale import LossScale, LossScaleState

_refused = partial(LossScaleValueError, where="DynamicLossScale")


class DynamicLossScale(LossScale):
    """As large a scale as the gradients stay finite with.

        finite, good_steps + 1 >= period: scale * multiplier if finite, else scale; good_steps = 0
        finite otherwise:                 good_steps + 1
        not finite:                       max(scale / multiplier, floor); good_steps = 0; skipped

    In float32 (P. Micikevicius et al., "Mixed Precision Training", 2018, section 3.2,
    https://arxiv.org/abs/1710.03740). `backoff_factor` is GradScaler's, `ceiling` Apex's. With
    DeepSpeed's `hysteresis` an overflow shrinks the scale only after hysteresis - 1 others since
    the scale grew, or, with `consecutive_hysteresis`, since the last finite step.

    Examples:
        >>> scale = amp.DynamicLossScale(initial_loss_scale=1024.0, increment_period=100)
        >>> scaled = amp.LossScaleOptimizer(amp.optimizers.GradientDescent(0.1), scale)
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float = 1.0,
        max_consecutive_skips: int | None = None,
        backoff_factor: float | None = None,
        ceiling: float | None = None,
        hysteresis: int = 1,
        consecutive_hysteresis: bool = False,
    ) -> None:
        """Keep the parameters.

        Args:
            initial_loss_scale: The scale of the first step.
            increment_period: The number of finite steps until it grows.
            multiplier: The factor of growth; the scale shrinks by 1 / multiplier. Above 1.
            floor: The smallest scale; above 0, and not above the initial scale.
            max_consecutive_skips: A session raises LossScaleError after this number of skipped
                steps in a row at the floor; 0 is never. None is never for `TrainingSession.run`,
                20 for `Trainer.train`.
            backoff_factor: The factor by which it shrinks, in (0, 1), in place of 1 / multiplier.
            ceiling: The largest scale; None is the largest number of float32.
            hysteresis: The number of the overflow that shrinks the scale: 1 is the first.
            consecutive_hysteresis: Whether every finite step begins that count anew; if not, only
                growth does.

        Raises:
            LossScaleValueError: An argument is impossible.
            LossScaleTypeError: `consecutive_hysteresis` is neither True nor False.
        """
        self.initial_loss_scale = _number("initial_loss_scale", initial_loss_scale, above=0)
        self.increment_period = _count("increment_period", increment_period)
        self.multiplier = _number("multiplier", multiplier, above=1)
        self.floor = _number("floor", floor, above=0)
        if self.floor > self.initial_loss_scale:
            raise _refused(
                "floor must not be above initial_loss_scale",
                found=f"floor {self.floor:g}, initial_loss_scale {self.initial_loss_scale:g}",
                remedy="set floor below 1 for such a small scale",
            )
        self.max_consecutive_skips = max_consecutive_skips
        if max_consecutive_skips is not None:
            _count("max_consecutive_skips", max_consecutive_skips, least=0)
        self.backoff_factor = None
        if backoff_factor is not None:
            self.backoff_factor = _number("backoff_factor", backoff_factor, above=0)
            if self.backoff_factor >= 1:
                raise _refused("impossible backoff_factor", found=backoff_factor, expected="(0, 1)")
        self.ceiling = None if ceiling is None else _number("ceiling", ceiling, above=0)
        if self.ceiling is not None and self.ceiling < self.initial_loss_scale:
            raise _refused(
                "ceiling must not be below initial_loss_scale",
                found=f"ceiling {self.ceiling:g}, initial_loss_scale {self.initial_loss_scale:g}",
            )
        self.hysteresis = _count("hysteresis", hysteresis)
        self.consecutive_hysteresis = arguments.switch(
            "consecutive_hysteresis", consecutive_hysteresis, error=LossScaleTypeError
        )

    @property
    def initial(self) -> float:
        """The scale of the first step."""
        return self.initial_loss_scale

    @property
    def kept(self) -> tuple[str, ...]:
        """All fields; the last one only for a hysteresis that counts until the scale grows."""
        counts_on = self.hysteresis > 1 and not self.consecutive_hysteresis
        return LossScaleState._fields if counts_on else super().kept

    def initial_state(self) -> LossScaleState:
        """Return the state before the first step; see `LossScale.initial_state`."""
        left = np.array(self.hysteresis, np.int64)
        return super().initial_state()._replace(hysteresis_left=left)

    def applied(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a finite step; see the class."""
        scale, good = state.current_loss_scale, b.add(state.good_steps, 1)
        grows = b.greater_or_equal(good, self.increment_period)
        larger = b.mul(scale, self.multiplier)
        larger = b.where(b.less_or_equal(larger, FLOAT32.max), larger, scale)
        if self.ceiling is not None:
            larger = b.minimum(larger, self.ceiling)
        state = state._replace(
            current_loss_scale=b.where(grows, larger, scale),
            good_steps=b.where(grows, 0, good),
            consecutive_skips=b.constant(0),
        )
        if "hysteresis_left" not in self.kept:
            return state
        left = b.where(grows, self.hysteresis, state.hysteresis_left)
        return state._replace(hysteresis_left=left)

    def skipped(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state after a step that was not finite; see the class."""
        scale, skips = state.current_loss_scale, b.add(state.consecutive_skips, 1)
        if self.backoff_factor is None:
            smaller = b.div(scale, self.multiplier)
        else:
            smaller = b.mul(scale, self.backoff_factor)
        smaller = b.maximum(smaller, self.floor)
        if "hysteresis_left" in self.kept:
            left = state.hysteresis_left
            smaller = b.where(b.less_or_equal(left, 1), smaller, scale)
            state = state._replace(hysteresis_left=b.maximum(b.sub(left, 1), 1))
        elif self.hysteresis > 1:
            smaller = b.where(b.greater_or_equal(skips, self.hysteresis), smaller, scale)
        return state._replace(
            current_loss_scale=smaller,
            good_steps=b.constant(0),
            skipped_steps=b.add(state.skipped_steps, 1),
            consecutive_skips=skips,
        )


def _number(name: str, value: object, *, above: float) -> float:
    """Return a parameter that is above `above` in float32 too."""
    following = float(np.nextafter(np.float32(above), np.float32(math.inf)))
    return arguments.number(
        name,
        value,
        low=(above + following) / 2,  # up to here float32 rounds to `above`
        high=FLOAT32.max,
        above=True,
        expected=f"a finite float32 number above {above:g}",
        error=_refused,
    )


def _count(name: str, value: object, least: int = 1) -> int:
    """Return a parameter that counts steps: int64."""
    return arguments.integer(name, value, low=least, error=_refused)
