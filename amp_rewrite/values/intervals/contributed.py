"""Operators of ONNX Runtime, com.microsoft: what its optimizer makes, and exporters write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from amp_rewrite.values.intervals import curves, normalizing, products
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.attention import averaged, cached, rotated
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule
from amp_rewrite.values.intervals.row_sums import columns, rows

QUICK = 1.702
"""Alpha of QuickGelu where the node does not say it."""

_CONV, _GEMM = products.RULES["Conv"], products.RULES["Gemm"]


def _with_weights(rule: Rule) -> Rule:
    """Make a rule that reads two inputs one that knows nothing where there are fewer.

    The gate does not check how many inputs operators of this domain have.
    """
    return lambda op: rule(op) if op.has(1) else [i.ANY] * op.n_outputs


def _sum(op: Operation, *indices: int) -> Interval:
    """Return the sum of those of some inputs that are there."""
    return reduce(i.add, [op.of(index) for index in indices if op.has(index)])


def _gelu(op: Operation) -> Interval:
    """Bound Gelu of the input, plus a bias if there is one."""
    return curves.dented(curves.LEAST_GELU, _sum(op, 0, 1))


def _last(op: Operation, data: int, scale: int) -> float:
    """Return the length of the last axis of some data, which is that of its scale."""
    length = normalizing.count(normalizing.lengths_from(op.shape(data), -1))
    return min(length, normalizing.count(op.shape(scale)))


def _skip(op: Operation, beta: int, bias: int) -> list[Interval]:
    """Bound a normalization of input + skip + bias, which gives that sum as well."""
    result = normalizing.normal(op, _last(op, 0, 2), 2, beta)
    return [result, i.ANY, i.NOT_NEGATIVE, _sum(op, 0, 1, bias)][: op.n_outputs]


def _embedded(op: Operation) -> list[Interval]:
    """Bound the normalized sum of the rows of up to three tables."""
    rows_of = _sum(op, 2, 3, 4).scattered()
    result = normalizing.normal(op, _last(op, 2, 5), 5, 6)
    return [result, i.NOT_NEGATIVE, rows_of][: op.n_outputs]


def _group(op: Operation) -> Interval:
    """Bound a group: channels come last or not, all axes but the batch's and the groups count."""
    together = normalizing.count(normalizing.lengths_from(op.shape(0), 1))
    normal = normalizing.normal(op, together / op.attribute("groups", 1), 1, 2)
    return curves.swish(normal, 1.0) if op.attribute("activation", 1) else normal


def _matmul(op: Operation) -> Interval:
    """Bound alpha x A' x B'; nothing is known where axes of the batch change places."""
    if op.attribute("transBatchA", 0) or op.attribute("transBatchB", 0):
        return i.ANY
    turned_a, turned_b = (bool(op.attribute(name, 0)) for name in ("transA", "transB"))
    sums = op.known.row_sums(op.inputs[1], rows if turned_b else columns)
    if sums is not None:
        product = sums.times(op.of(0), op.share)
    else:
        shape, axis = op.shape(0), -2 if turned_a else -1
        terms = shape[axis] if shape is not None and len(shape) >= -axis else None
        product = products.sum_of(op, i.multiply(op.of(0), op.of(1)), terms)
    return i.scale(product, op.attribute("alpha", 1.0))


def _activated(op: Operation, x: Interval) -> Interval:
    """Return what the activation of a fused operator makes of its result."""
    name = op.attribute("activation", "")
    if not name:
        return x
    return i.largest(x, i.ZERO) if name == "Relu" else _BOUNDED.get(str(name), i.ANY)


# Activations with bounded results.
_BOUNDED = {"HardSigmoid": i.UNIT, "Sigmoid": i.UNIT, "Tanh": i.SIGNED_UNIT}


def _fused_convolution(op: Operation) -> Interval:
    """Bound a convolution, to which a fourth input is added before it is activated."""
    product = _first(_CONV(op))
    return _activated(op, i.add(product, op.of(3)) if op.has(3) else product)


def _first(results: Interval | list[Interval]) -> Interval:
    return results if isinstance(results, Interval) else results[0]


def _attention(op: Operation) -> list[Interval]:
    """Bound an attention that makes queries, keys and values by one product with its weights."""
    sums = op.known.row_sums(op.inputs[1], columns)
    if sums is None:
        return [i.ANY] * op.n_outputs
    packed = sums.times(op.of(0), op.share)
    packed = i.add(packed, op.of(2)) if op.has(2) else packed
    held = (packed | op.of(4) if op.has(4) else packed).scattered()
    present = i.ANY if op.attribute("do_rotary", 0) else held
    return [averaged(held), present][: op.n_outputs]


def _multi_head(op: Operation) -> list[Interval]:
    """Bound an attention whose values are an input of their own, or part of a packed one."""
    source = next((index for index in (2, 1) if op.has(index)), 0)
    packed = op.of(source)
    values = (packed | i.add(packed, op.of(3)) if op.has(3) else packed).scattered()
    values = (values | op.of(7)).scattered() if op.has(7) else values
    return [averaged(values), i.ANY, values, i.ANY][: op.n_outputs]


def _grouped(op: Operation) -> list[Interval]:
    """Bound an attention with shared keys; nothing is known of values that are quantised."""
    if op.has(12) or op.has(13):
        return [i.ANY] * op.n_outputs
    values = cached(op, 2 if op.has(2) else 0, 4)
    return [averaged(values), i.ANY, values, i.ANY][: op.n_outputs]


RULES: Mapping[str, Rule] = {
    "Attention": _with_weights(_attention),
    "BiasAdd": lambda op: _sum(op, 0, 1, 2),
    "BiasGelu": _gelu,
    "BiasSoftmax": lambda op: i.UNIT,
    "EmbedLayerNormalization": _embedded,
    "FastGelu": _gelu,
    "FusedConv": _with_weights(_fused_convolution),
    "FusedGemm": _with_weights(lambda op: _activated(op, _first(_GEMM(op)))),
    "FusedMatMul": _with_weights(_matmul),
    "Gelu": _gelu,
    "GroupNorm": _group,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
    "QuickGelu": lambda op: curves.swish(op.of(0), op.attribute("alpha", QUICK)),
    "RotaryEmbedding": lambda op: rotated(op.of(0), op.of(2), op.of(3)),
    "SkipLayerNormalization": lambda op: _skip(op, beta=3, bias=4),
    "SkipSimplifiedLayerNormalization": lambda op: _skip(op, beta=len(op.inputs), bias=3),
}
"""Operator of com.microsoft -> what its results are bound to be."""
