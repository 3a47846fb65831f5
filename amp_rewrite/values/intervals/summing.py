"""Sums, means and extremes along axes and in windows.

Evidence: without ReduceSum's rule both sides of a difference become low
(tests/conformance/test_differences.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule


def _summed(op: Operation, term: Interval) -> Interval:
    """Return the sum of terms along the axes."""
    return _total(term, op.terms, op.share)


def _total(term: Interval, count: float | None, share: float) -> Interval:
    """Return the sum of some terms; without their number only its sign is known."""
    if count is not None:
        return i.total(term, count, share)
    if term.low >= 0:
        return i.NOT_NEGATIVE
    return i.between(-math.inf, 0.0) if term.high <= 0 else i.ANY


def _sum(op: Operation) -> Interval:
    return _summed(op, op.of(0))


def _sum_of_squares(op: Operation) -> Interval:
    magnitude = i.absolute(op.of(0))
    return _summed(op, i.multiply(magnitude, magnitude))


def _averaged(x: Interval, count: float | None, share: float) -> Interval:
    """Bound a mean: between the extremes, but for the rounding of a sum of N terms."""
    return i.total(x, 1.0, 1.0 if count is None else min(count * share, 1.0))


def _extreme(op: Operation) -> Interval:
    """Bound the largest or smallest element; of no elements that is an infinity."""
    x = op.of(0)
    if _may_be_empty(op):
        return i.ANY
    return i.between(x.low, x.high)._replace(away=x.away, reach=x.away)


def _may_be_empty(op: Operation) -> bool:
    shape = op.shape(0)
    return shape is not None and 0 in shape


def _mean_in_window(op: Operation) -> Interval:
    """Bound the mean of a window; padding may count as zeros."""
    x = op.of(0)
    inside = x | i.ZERO if op.attribute("count_include_pad", 0) else x
    return _averaged(inside, op.terms, op.share)


def _cumulated(op: Operation) -> Interval:
    """Bound the sums of up to all elements along an axis."""
    return _total((op.of(0) | i.ZERO).scattered(), op.terms, op.share)


RULES: Mapping[str, Rule] = {
    "AveragePool": _mean_in_window,
    "CumSum": _cumulated,
    "GlobalAveragePool": lambda op: _averaged(op.of(0), op.terms, op.share),
    "GlobalMaxPool": _extreme,
    "MaxPool": lambda op: [_extreme(op), i.NOT_NEGATIVE][: op.n_outputs],
    "ReduceL2": lambda op: i.increasing(math.sqrt, _sum_of_squares(op)),
    "ReduceMax": _extreme,
    "ReduceMean": lambda op: _averaged(op.of(0), op.terms, op.share),
    "ReduceMin": _extreme,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_of_squares,
}
"""Operator -> what its result is bound to be."""
