"""Normalizations and recurrent cells, whose results are bounded whatever they are given.

Of n numbers with mean 0 and mean square 1 none exceeds sqrt(n - 1), and of n numbers with mean
square 1 none exceeds sqrt(n) (P. A. Samuelson, "How Deviant Can You Be?", 1968).

Evidence: without the rule of SimplifiedLayerNormalization a residual stream beyond float16 is not
scaled (tests/numerics/convert/test_scale.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amp_rewrite.graph.sizes import product_of
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule

_ROOM = 1.001
"""Kernels that subtract a rounded mean exceed the bound by a little."""


def count(lengths: Sequence[int | None] | None) -> float:
    """Return how many elements are normalised together, as far as shapes tell."""
    product = product_of(lengths)
    return math.inf if product is None else float(product)


def lengths_from(shape: Sequence[int | None] | None, axis: int) -> Sequence[int | None] | None:
    """Return the lengths from an axis on."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis % len(shape) :]


def normal(op: Operation, together: float, scale: int, bias: int | None = None) -> Interval:
    """Bound numbers of mean square 1, normalised `together`, times a scale plus a bias."""
    result = i.symmetric(math.sqrt(together) * _ROOM)
    result = i.multiply(result, op.of(scale)) if op.has(scale) else result
    return i.add(result, op.of(bias)) if bias is not None and op.has(bias) else result


def _together(op: Operation) -> float:
    """Return how many elements from the axis on there are; the scale of the last one tells too."""
    axis = op.attribute("axis", -1)
    if axis == -1:
        scales = count(op.shape(1))
        if 1 < scales < math.inf:
            return scales
    return count(lengths_from(op.shape(0), axis))


def _layer(op: Operation) -> list[Interval]:
    result = normal(op, _together(op), 1, 2)
    return [result, i.ANY, i.NOT_NEGATIVE][: op.n_outputs]


def _group(op: Operation) -> Interval:
    """Bound a group: the channels of one group, and all that is behind them."""
    groups = op.attribute("num_groups", 1)
    return normal(op, count(lengths_from(op.shape(0), 1)) / groups, 1, 2)


def _batch(op: Operation) -> Interval:
    """Bound scale x (x - mean) / sqrt(variance + epsilon) + bias with fixed statistics."""
    if op.attribute("training_mode", 0) or op.n_outputs > 1:
        return i.ANY
    x, factor, bias, mean, variance = (op.of(index) for index in range(5))
    if not x.is_bounded:
        return i.ANY
    safe = i.add(variance, i.point(op.attribute("epsilon", 1e-5)))
    if safe.low <= 0:
        return i.ANY
    root = i.between(math.sqrt(safe.low), math.sqrt(safe.high))
    return i.add(i.multiply(i.divide(i.subtract(x, mean), root), factor), bias)


def _local_response(op: Operation) -> Interval:
    """Bound x / (bias + a sum of squares) ** beta, which is x / bias ** beta at most."""
    bias, beta, alpha = (
        op.attribute(*pair) for pair in (("bias", 1.0), ("beta", 0.75), ("alpha", 1e-4))
    )
    if bias <= 0 or beta < 0 or alpha < 0:
        return i.ANY
    return (i.scale(op.of(0), bias**-beta) | i.ZERO).scattered()


def _spread(op: Operation) -> Interval:
    axes = op.attribute("axes", (0, 2, 3))
    shape = op.shape(0)
    lengths = [shape[a] if -len(shape) <= a < len(shape) else None for a in axes] if shape else None
    return i.symmetric(math.sqrt(count(lengths)) * _ROOM)


def _recurrent(op: Operation) -> list[Interval]:
    """Bound hidden states: with the activations that are assumed, tanh and means of it."""
    if op.attribute("activations") is not None:
        return [i.ANY] * op.n_outputs
    state = i.SIGNED_UNIT | op.of(5) if op.has(5) else i.SIGNED_UNIT
    return [state.scattered(), state.scattered(), i.ANY][: op.n_outputs]


RULES: Mapping[str, Rule] = {
    "BatchNormalization": _batch,
    "GRU": _recurrent,
    "GroupNormalization": _group,
    "InstanceNormalization": lambda op: normal(op, count(lengths_from(op.shape(0), 2)), 1, 2),
    "LRN": _local_response,
    "LSTM": _recurrent,
    "LayerNormalization": _layer,
    "LpNormalization": lambda op: i.SIGNED_UNIT,
    "MeanVarianceNormalization": _spread,
    "RMSNormalization": lambda op: normal(op, _together(op), 1),
    "SimplifiedLayerNormalization": lambda op: normal(op, _together(op), 1),
    "RNN": _recurrent,
}
"""Operator -> what its result is bound to be."""
