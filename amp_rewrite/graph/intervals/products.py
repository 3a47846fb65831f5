"""Sums of products: MatMul, Gemm, Conv and their like.

Each element of the result is a sum over j of x_j w_j. With constant weights its bound is the
largest sum of magnitudes |w_j| of a row times the bound of x, with signs where both have one;
without, the number of terms times the bound of a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.intervals import interval as i
from amp_rewrite.graph.intervals.interval import Interval
from amp_rewrite.graph.intervals.operation import Operation, Rule

_TINY = np.finfo(np.float64).tiny


def _matmul_columns(weights: Array) -> Array:
    return np.moveaxis(weights, -2, -1).reshape(-1, weights.shape[-2])


def _matmul(op: Operation) -> Interval:
    shapes = op.shape(0), op.shape(1)
    right = op.array(1)
    if right is not None and right.ndim >= 2:
        return _weighted(op, op.of(0), _matmul_columns(right))
    left = op.array(0)
    if left is not None and left.ndim >= 2:
        return _weighted(op, op.of(1), left.reshape(-1, left.shape[-1]))
    return _unweighted(op, 0, 1, _terms(shapes[0], -1) or _terms(shapes[1], -2))


def _gemm(op: Operation) -> Interval:
    """Bound alpha x A' x B' + beta x C."""
    transposed = bool(op.attribute("transB", 0))
    weights = op.array(1)
    if weights is not None and weights.ndim == 2:
        product = _weighted(op, op.of(0), weights if transposed else weights.T)
    else:
        terms = _terms(op.shape(1), 1 if transposed else 0)
        product = _unweighted(op, 0, 1, terms)
    result = i.scale(product, op.attribute("alpha", 1.0))
    bias = op.of(2) if op.has(2) else i.ZERO
    return i.add(result, i.scale(bias, op.attribute("beta", 1.0)))


def _convolution(op: Operation) -> Interval:
    """Bound a convolution; padding takes terms away, as zeros do."""
    x, weights = (op.of(0) | i.ZERO).scattered(), op.array(1)
    if weights is not None and weights.ndim >= 2:
        product = _weighted(op, x, weights.reshape(len(weights), -1))
    else:
        shape = op.shape(1)
        known = shape is not None and None not in shape[1:]
        terms = math.prod(d or 0 for d in shape[1:]) if shape is not None and known else None
        product = _sum_of(op, lambda: i.multiply(x, op.of(1)), x, terms)
    return i.add(product, op.of(2)) if op.has(2) else product


def _transposed_convolution(op: Operation) -> Interval:
    """Bound a transposed convolution: an output meets each weight of its channel at most once."""
    x, weights = (op.of(0) | i.ZERO).scattered(), op.array(1)
    groups = op.attribute("group", 1)
    if weights is not None and weights.ndim >= 3 and len(weights) % groups == 0:
        split = weights.reshape(groups, -1, *weights.shape[1:])
        product = _weighted(op, x, _per_output(split))
    else:
        shape = op.shape(1)
        known = shape is not None and None not in shape
        terms = math.prod(d or 0 for d in (shape[0], *shape[2:])) if shape and known else None
        product = _sum_of(op, lambda: i.multiply(x, op.of(1)), x, terms)
    return i.add(product, op.of(2)) if op.has(2) else product


def _per_output(split: Array) -> Array:
    """Return rows of weights in the layout (group, inputs of it, outputs of it, window...)."""
    moved = np.moveaxis(split, 2, 1)
    return moved.reshape(moved.shape[0] * moved.shape[1], -1)


def _terms(shape: Sequence[int | None] | None, axis: int) -> int | None:
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _weighted(op: Operation, x: Interval, rows: Array) -> Interval:
    """Bound the sums of x times each row of constant weights."""
    if not rows.size or not np.isfinite(rows).all():
        return i.ANY if rows.size else i.ZERO
    rows = rows.astype(np.float64)
    up, down = _one_sided(rows, x.high, x.low), _one_sided(rows, x.low, x.high)
    error = rows.shape[1] * op.share * float(np.abs(rows).sum(axis=1).max()) * x.magnitude
    low, high = float(down.min()), float(up.max())
    return i.between(
        low - error if low < 0 else max(low - error, 0.0),
        high + error if high > 0 else min(high + error, 0.0),
    )


def _one_sided(rows: Array, for_positive: float, for_negative: float) -> Array:
    """Return, by row, the sum of the positive weights times one number, the others another."""
    positive, negative = (
        np.clip(part, 0.0, None).sum(axis=1, dtype=np.float64) for part in (rows, -rows)
    )
    return _times(positive, for_positive) - _times(negative, for_negative)


def _times(sums: Array, number: float) -> Array:
    """Multiply; zero times infinity is zero, for without such weights there is no term."""
    return np.where(sums > 0, np.maximum(sums, _TINY) * number, 0.0)


def _unweighted(op: Operation, first: int, second: int, terms: int | None) -> Interval:
    a = op.of(first)
    return _sum_of(op, lambda: i.multiply(a, op.of(second)), a, terms)


def _sum_of(
    op: Operation, product: Callable[[], Interval], data: Interval, terms: int | None
) -> Interval:
    """Bound a sum of products; what is unbounded in both directions is not looked at further."""
    if data.low == -math.inf and data.high == math.inf:
        return i.ANY
    term = product()
    if terms is not None:
        return i.total(term, float(terms), op.share)
    return i.NOT_NEGATIVE if term.low >= 0 else i.ANY


RULES: Mapping[str, Rule] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
"""Operator -> what its result is bound to be."""
