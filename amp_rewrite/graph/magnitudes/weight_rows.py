"""The rows of constant weights: what a sum of products with them does to mean and deviation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.magnitudes.estimate import Estimate

COMMON = 0.5
"""Which share of the variance inputs of one sum have in common: neighbours in images and audio."""

DOUBT = 2.0
"""What a deviation is divided by with each sum of products.

Means follow from sums of weights; deviations from guesses about how inputs go together, and guesses
multiply: in ppocrv4_det they were too large by 1.2 to 2 times with each of 25 layers. Estimates are
to fall short of the truth rather than to raise false alarms.
"""


class WeightRows(NamedTuple):
    """The rows of a weight, one for each output, on average.

    Attributes:
        total: The mean of the rows' sums.
        variance: The variance of the rows' sums.
        norm: The mean of the rows' sums of squares.
    """

    total: float
    variance: float
    norm: float

    @classmethod
    def of(cls, rows: Array) -> WeightRows:
        """Measure rows."""
        sums = rows.sum(axis=1, dtype=np.float64)
        norm = float(np.square(rows, dtype=np.float64).sum())
        return cls(float(sums.mean()), float(sums.var()), norm / len(rows))

    @classmethod
    def sampled(cls, elements: Array, terms: float) -> WeightRows:
        """Say what rows of so many terms are like whose elements are like a sample."""
        mean, variance = float(elements.mean()), float(elements.var())
        return cls(terms * mean, terms * variance, terms * (mean * mean + variance))

    def applied(self, x: Estimate) -> Estimate:
        """Return the estimate of the sums of x times each row."""
        together = self.total * self.total + self.variance
        spread = x.spread**2 * ((1 - COMMON) * self.norm + COMMON * together)
        variance = spread + x.mean**2 * self.variance
        return Estimate(x.mean * self.total, math.sqrt(variance) / DOUBT, x.degree)
