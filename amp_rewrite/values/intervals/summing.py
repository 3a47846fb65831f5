"""Sums: products of matrices, reductions, means and extremes, along axes and in windows.

With constant weights a product's bound is the largest sum of magnitudes of a row times the bound of
x, with signs where both have one; without, the number of terms times the bound of a product.

Evidence: without the rules of MatMul, Einsum and ReduceSum both sides of a difference become low
(tests/conformance/test_differences.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule
from amp_rewrite.values.intervals.row_sums import Layout, columns, filters, rows, transposed_filters


def _total_of(op: Operation, term: Interval) -> Interval:
    """Bound the sum of a node's terms; without their number only its sign is known."""
    if op.terms is not None:
        return i.total(term, op.terms, op.share)
    if term.low >= 0:
        return i.NOT_NEGATIVE
    return i.between(-math.inf, 0.0) if term.high <= 0 else i.ANY


def _sum_of_squares(op: Operation) -> Interval:
    magnitude = i.absolute(op.of(0))
    return _total_of(op, i.multiply(magnitude, magnitude))


def _averaged(op: Operation) -> Interval:
    """Bound a mean: between the extremes, but for the rounding of a sum of N terms."""
    x, count = op.of(0), op.terms
    inside = x | i.ZERO if op.attribute("count_include_pad", 0) else x  # of a window
    return i.total(inside, 1.0, 1.0 if count is None else min(count * op.share, 1.0))


def _extreme(op: Operation) -> Interval:
    """Bound the largest or smallest element; of no elements that is an infinity."""
    x = op.of(0)
    if 0 in (op.shape(0) or ()):
        return i.ANY
    return i.between(x.low, x.high)._replace(away=x.away, reach=x.away)


def _cumulated(op: Operation) -> Interval:
    """Bound the sums of up to all elements along an axis."""
    return _total_of(op, (op.of(0) | i.ZERO).scattered())


def _matmul(op: Operation) -> Interval:
    for index, layout in ((1, columns), (0, rows)):
        sums = op.known.row_sums(op.inputs[index], layout)
        if sums is not None:
            return sums.times(op.of(1 - index), op.share)
    return _unweighted(op)


def _gemm(op: Operation) -> Interval:
    """Bound alpha x A' x B' + beta x C."""
    transposed = bool(op.attribute("transB", 0))
    sums = op.known.row_sums(op.inputs[1], rows if transposed else columns)
    product = _unweighted(op) if sums is None else sums.times(op.of(0), op.share)
    result = i.scale(product, op.attribute("alpha", 1.0))
    bias = op.of(2) if op.has(2) else i.ZERO
    return i.add(result, i.scale(bias, op.attribute("beta", 1.0)))


def _transposed_convolution(op: Operation) -> Interval:
    """Bound a transposed convolution: an output meets each weight of its channel at most once."""
    return _windowed(op, transposed_filters(op.attribute("group", 1)))


def _windowed(op: Operation, layout: Layout) -> Interval:
    """Bound a convolution with rows of weights; padding takes terms away, as zeros do."""
    x = (op.of(0) | i.ZERO).scattered()
    if x.low == -math.inf and x.high == math.inf:
        return i.ANY
    sums = op.known.row_sums(op.inputs[1], layout)
    product = _total_of(op, i.multiply(x, op.of(1))) if sums is None else sums.times(x, op.share)
    return i.add(product, op.of(2)) if op.has(2) else product


def _unweighted(op: Operation) -> Interval:
    """Bound a product of computed operands, or of long weights."""
    a = op.of(0)
    if a.low == -math.inf and a.high == math.inf:
        return i.ANY  # and nobody needs to read the weights for it
    return _total_of(op, i.multiply(a, op.of(1)))


_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")  # operators: means
_EXTREMES = ("GlobalMaxPool", "ReduceMax", "ReduceMin")  # operators: the largest, the smallest

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_MEANS, _averaged),
    **dict.fromkeys(_EXTREMES, _extreme),
    "Conv": lambda op: _windowed(op, filters),
    "ConvTranspose": _transposed_convolution,
    "CumSum": _cumulated,
    "Einsum": lambda op: _total_of(op, reduce(i.multiply, op.of_all())),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MaxPool": lambda op: [_extreme(op), i.NOT_NEGATIVE][: op.n_outputs],
    "ReduceL2": lambda op: i.increasing(math.sqrt, _sum_of_squares(op)),
    "ReduceSum": lambda op: _total_of(op, op.of(0)),
    "ReduceSumSquare": _sum_of_squares,
}
"""Operator -> what its result is bound to be."""
