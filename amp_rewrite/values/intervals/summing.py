"""Sums, means and extremes along axes and in windows.

Evidence: without ReduceSum's rule both sides of a difference become low
(tests/conformance/test_differences.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.sizes import product_of
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule


def reduced_length(op: Operation) -> float | None:
    """Return how many elements a reduction takes together, or None if shapes do not tell."""
    shape = op.shape(0)
    if shape is None:
        return None
    axes = op.attribute("axes")
    if axes is None and op.has(1):
        axes_input = op.array(1)
        if axes_input is None:
            return None
        axes = [int(axis) for axis in axes_input.reshape(-1)]
    if not axes:
        axes = [] if op.attribute("noop_with_empty_axes", 0) else list(range(len(shape)))
    lengths = [shape[axis] if -len(shape) <= axis < len(shape) else None for axis in axes]
    product = product_of(lengths)
    return None if product is None else float(product)


def length_along(op: Operation, axis: Array | None) -> int | None:
    """Return the length of the first input along an axis, or None if it is not known."""
    shape = op.shape(0)
    if shape is None or axis is None or axis.size != 1:
        return None
    position = int(axis.reshape(-1)[0])
    return shape[position] if -len(shape) <= position < len(shape) else None


def _summed(op: Operation, term: Interval) -> Interval:
    """Return the sum of terms along the axes."""
    return _total(term, reduced_length(op), op.share)


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
    window = op.attribute("kernel_shape", ())
    return _averaged(inside, float(math.prod(window)), op.share)


def _mean_of_channel(op: Operation) -> Interval:
    """Bound the mean over all axes behind batch and channel."""
    shape = op.shape(0)
    count = product_of(None if shape is None else shape[2:])
    return _averaged(op.of(0), count, op.share)


def _cumulated(op: Operation) -> Interval:
    """Bound the sums of up to all elements along an axis."""
    length, term = length_along(op, op.array(1)), (op.of(0) | i.ZERO).scattered()
    return _total(term, length, op.share)


RULES: Mapping[str, Rule] = {
    "AveragePool": _mean_in_window,
    "CumSum": _cumulated,
    "GlobalAveragePool": _mean_of_channel,
    "GlobalMaxPool": _extreme,
    "MaxPool": lambda op: [_extreme(op), i.NOT_NEGATIVE][: op.n_outputs],
    "ReduceL2": lambda op: i.increasing(math.sqrt, _sum_of_squares(op)),
    "ReduceMax": _extreme,
    "ReduceMean": lambda op: _averaged(op.of(0), reduced_length(op), op.share),
    "ReduceMin": _extreme,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_of_squares,
}
"""Operator -> what its result is bound to be."""
