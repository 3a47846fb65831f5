"""Where noisy losses fall most steeply before they first rise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
