"""Tolerances: one metric and one limit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from amp_rewrite.base import arguments
from amp_rewrite.numerics.compare.distance import COSINE, ERROR, OutputComparison

METRICS = ("max-relative", "error", "cosine", "top1")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A metric and its limit; a loss of 0 is perfect, and the tolerance holds up to `limit`.

    Attributes:
        metric: "max-relative": the largest |16-bit - float32| over the largest |float32| of an
            output. "error": what `verify` measures (compare/distance.py), the root mean square
            error over the spread of an output first of all. "cosine": 1 - the cosine between the
            two outputs. "top1": the share of rows (along the last axis) whose largest element is
            another one.
        limit: The largest loss to accept.
    """

    metric: str
    limit: float

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            OptionError: The metric is unknown or the limit is negative.
        """
        arguments.one_of("metric", self.metric, METRICS)
        arguments.number("tolerance", self.limit, low=0, expected="a number of at least 0")

    @staticmethod
    def default(metric: str, rtol: float) -> Tolerance:
        """Return the usual limit: that of `verify`, cosine 0.999, no other class, or `rtol`."""
        limits = {"error": ERROR, "cosine": 1 - COSINE, "top1": 0.0}
        return Tolerance(metric, limits.get(metric, rtol))

    def loss(self, outputs: Iterable[OutputComparison]) -> float:
        """Return the loss of the worst output; infinite where numbers became infinite or NaN.

        Of an output that is not floating-point it is the share of other elements.
        """
        return max((self._loss(output) for output in outputs), default=0.0)

    def _loss(self, output: OutputComparison) -> float:
        if output.shape_differs or output.nan or output.inf:
            return math.inf
        if output.error is None:
            return 1.0 - output.within if output.elements else 0.0
        if self.metric == "max-relative":
            slices = 0.0 if output.slice is None else output.slice.share * self.limit
            return max(output.scaled_error, slices)
        if self.metric == "error":
            return output.share * ERROR
        found = output.cosine if self.metric == "cosine" else output.top1
        return 0.0 if found is None else max(0.0, 1.0 - found)
