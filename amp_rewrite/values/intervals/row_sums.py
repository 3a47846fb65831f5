"""The rows of constant weights, one for each output: their layouts, and what they sum up to."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval

Layout = Callable[[Array], Array]
"""Brings weights into a matrix with a row for each output: the factors of its terms."""


def columns(weights: Array) -> Array:
    """Return the rows of a right operand of MatMul: (..., terms, outputs)."""
    if weights.ndim == 2:
        return weights.T
    if weights.ndim < 2:
        return weights.reshape(1, -1)
    return weights.swapaxes(-2, -1).reshape(-1, weights.shape[-2])


def rows(weights: Array) -> Array:
    """Return the rows of a left operand of MatMul: (..., outputs, terms)."""
    return weights.reshape(-1, weights.shape[-1]) if weights.ndim else weights.reshape(1, 1)


def filters(weights: Array) -> Array:
    """Return the rows of a convolution's weights: (outputs, inputs, window...)."""
    return weights.reshape(len(weights) if weights.ndim else 1, -1)


@cache
def transposed_filters(groups: int) -> Layout:
    """Return the layout of a transposed convolution: (inputs, outputs of a group, window...)."""

    def layout(weights: Array) -> Array:
        if weights.ndim < 2 or groups < 1 or len(weights) % groups:
            return weights.reshape(1, -1)  # no model that runs: all that there is in one row
        split = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
        return split.reshape(split.shape[0] * split.shape[1], -1)

    return layout


class RowSums(NamedTuple):
    """The sums of the weights of a row, over all rows.

    Attributes:
        terms: How many weights a row has.
        positive: The least and the greatest sum of a row's positive weights.
        negative: The same of the magnitudes of its negative weights.
        heaviest: The greatest sum of a row's magnitudes.
    """

    terms: int
    positive: tuple[float, float]
    negative: tuple[float, float]
    heaviest: float

    @classmethod
    def of(cls, matrix: Array) -> RowSums:
        """Sum up rows; weights that are not finite make sums that are not."""
        with np.errstate(invalid="ignore"):  # signalling NaN, and inf - inf
            magnitudes = np.abs(matrix).sum(axis=1, dtype=np.float64)
            totals = matrix.sum(axis=1, dtype=np.float64)
            positive, negative = (magnitudes + totals) / 2, (magnitudes - totals) / 2
        return cls(
            matrix.shape[1],
            (max(float(positive.min()), 0.0), float(positive.max())),
            (max(float(negative.min()), 0.0), float(negative.max())),
            float(magnitudes.max()),
        )

    def times(self, x: Interval, share: float) -> Interval:
        """Return the interval of the sums of x times each row, rounded at every addition."""
        if not math.isfinite(self.heaviest):
            return i.ANY
        low, high = -self._highest(-x.high, -x.low), self._highest(x.low, x.high)
        error = (self.terms + 1) * share * i.finite_product(self.heaviest, x.magnitude)
        return i.between(
            low - error if low < 0 or low > error else 0.0,
            high + error if high > 0 or -high > error else 0.0,
        )

    def _highest(self, low: float, high: float) -> float:
        """Return a bound of the sums from above: positive weights meet `high`, others `low`."""
        of_positive = i.finite_product(self.positive[high > 0], high)
        of_negative = i.finite_product(self.negative[low < 0], -low)
        most = i.finite_product(self.heaviest, max(-low, high, -high, low))
        return min(of_positive + of_negative, most)
