"""How operators change mean and deviation: one rule an operator, unknown where none is known.

Evidence: light_bvlc_alexnet in float16: all 1,000 outputs are infinite or NaN without estimates,
none with them; a residual stream through SkipSimplifiedLayerNormalization: its overflow is not seen
without the rules of com.microsoft (tests/rewriting/test_kernel_first.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Protocol

from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.row_sums import Layout
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import DOUBT, Estimate, WeightRows

Given = Sequence[Estimate | None]

FREE = 1.0
"""The assumed length of a free axis: estimates are to fall short of the truth."""

_ASTRAY = 4.0
"""Statistics of a BatchNormalization describe its input if they agree with it up to this factor."""


class Samples(Protocol):
    """Questions of rules about constants."""

    def rows(
        self, op: Operation, index: int, layout: Layout, terms: int | None = None
    ) -> WeightRows | None:
        """Return what the rows of a constant operand are like; None for what is none."""
        ...


EstimateRule = Callable[[Operation, Given, Samples], Estimate | None]
"""The estimate of a node's outputs from those of its inputs."""


def _first(function: Callable[[Estimate], Estimate | None]) -> EstimateRule:
    def rule(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        return None if operands[0] is None else function(operands[0])

    return rule


def _pair(function: Callable[[Operation, Estimate, Estimate], Estimate | None]) -> EstimateRule:
    def rule(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        a, b = operands[0], operands[1]
        return None if a is None or b is None else function(op, a, b)

    return rule


def _folded(function: Callable[[Estimate, Estimate], Estimate]) -> EstimateRule:
    def rule(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        present = [a for a in operands if a is not None]
        return reduce(function, present) if present and len(present) == len(operands) else None

    return rule


def _mixed(*indices: int) -> EstimateRule:
    """Make the rule of operators that put elements of several inputs together; masks are none."""

    def rule(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        chosen = [operands[k] for k in indices or range(len(operands)) if k < len(operands)]
        present = [a for a in chosen if a is not None]
        return e.mixed(*present) if present else None

    return rule


def _bounded(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Put elements together as `_mixed`; a bound alone says nothing of what it bounds."""
    known = [k for k, a in enumerate(operands) if a is not None]
    if len(known) < len(operands) and all(op.of(k).is_point for k in known):
        return None
    return _mixed()(op, operands, samples)


def _divided(op: Operation, a: Estimate, b: Estimate) -> Estimate | None:
    if not b.size:
        return None
    return a.scaled(1 / b.size)._replace(degree=max(a.degree - b.degree, 0.0))


def _power(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    base, exponent = operands[0], op.of(1)
    if base is None or not exponent.is_point or exponent.low < 0 or base.size > 1e30:
        return None
    if exponent.low == 2:
        return e.squared(base)
    size = base.size**exponent.low
    return Estimate(size / 2, size / 2, base.degree * exponent.low)


def _root(a: Estimate) -> Estimate:
    size = math.sqrt(a.size)
    return Estimate(size, size / 2, a.degree / 2)


def _magnitude(a: Estimate) -> Estimate:
    """Return the estimate of |x| = max(x, 0) + max(-x, 0)."""
    mean = a.rectified().mean + a.scaled(-1.0).rectified().mean
    return e.of_moments(mean, a.square, a.degree)


def _reduced(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Sum along axes; half of the variance is common to the terms, as in a product."""
    x, count = operands[0], op.terms
    if x is None or count is None:
        return None
    return WeightRows(float(count), 0.0, float(count)).applied(x)


def _reduced_squares(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    squares = None if operands[0] is None else e.squared(operands[0])
    return _reduced(op, [squares], samples)


def _softmax(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Spread 1 over the last axis, whichever it is: an attribute for each would take long."""
    shape = op.shape(0)
    share = 1 / ((shape[-1] if shape else None) or FREE)
    return Estimate(share, share)


def _matmul(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    rows = samples.rows(op, 1, row_sums.columns)
    if rows is not None:
        return None if operands[0] is None else rows.applied_to_rows(operands[0])
    rows = samples.rows(op, 0, row_sums.rows)
    if rows is not None:
        return None if operands[1] is None else rows.applied_to_rows(operands[1].turned()).turned()
    return _computed_product(op, operands)


def _computed_product(op: Operation, operands: Given) -> Estimate | None:
    """Return the estimate of a sum of products of two operands that depend on the input."""
    if len(operands) < 2:
        return None
    a, b = operands[:2]
    return None if a is None or b is None else _summed(op, e.multiply(a, b))


def _summed(op: Operation, term: Estimate) -> Estimate:
    """Take the terms of a sum for independent; those of an unknown number for one."""
    terms = float(op.terms or FREE)
    return Estimate(terms * term.mean, math.sqrt(terms) * term.spread / DOUBT, term.degree)


def _gemm(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    layout = row_sums.rows if op.attribute("transB", 0) else row_sums.columns
    rows = samples.rows(op, 1, layout)
    if rows is None:
        product = _computed_product(op, operands)
    else:
        product = None if operands[0] is None else rows.applied_to_rows(operands[0])
    if product is None:
        return None
    return _biased(product.scaled(op.attribute("alpha", 1.0)), operands)


def _biased(product: Estimate, operands: Given) -> Estimate:
    bias = operands[2] if len(operands) > 2 else None
    return product if bias is None else e.add(product, bias)


def _convolution(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    return _convolved(op, operands, samples, row_sums.filters, 1)


def _transposed_convolution(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Take all windows that may overlap; a stride leaves out most of them."""
    layout = row_sums.transposed_filters(op.attribute("group", 1))
    return _convolved(op, operands, samples, layout, math.prod(op.attribute("strides", ())) or 1)


def _convolved(
    op: Operation, operands: Given, samples: Samples, layout: Layout, left_out: int
) -> Estimate | None:
    x, rows = operands[0], samples.rows(op, 1, layout)
    if x is None or rows is None:
        return None
    return _biased(rows.applied(x).scaled(1 / math.sqrt(left_out)), operands)


def _normalized(scale: int, bias: int | None = None) -> EstimateRule:
    """Make the rule of normalizations: mean square 1, times a scale, plus a bias."""

    def rule(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        factor = operands[scale] if op.has(scale) else None
        product = Estimate(0.0, 1.0 if factor is None else factor.size)
        added = operands[bias] if bias is not None and op.has(bias) else None
        return product if added is None else e.add(product, added)

    return rule


def _batch(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Trust the statistics as far as they agree with what the weights in front say."""
    x, scale, bias, mean, variance = operands[:5]
    if scale is None or bias is None or mean is None or variance is None:
        return None
    kept = Estimate(mean.mean, math.hypot(math.sqrt(max(variance.mean, 0.0)), mean.spread))
    if x is None or x.size <= _ASTRAY * kept.size:
        return e.add(Estimate(0.0, scale.size), bias)
    root = math.sqrt(max(variance.mean, 0.0) + op.attribute("epsilon", 1e-5))
    centred = e.add(x, mean.scaled(-1.0)).scaled(1 / root)
    return e.add(e.multiply(centred, scale), bias)


def _einsum(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    known = [a for a in operands if a is not None]
    return _summed(op, reduce(e.multiply, known)) if len(known) == len(operands) else None


def _transposed(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Exchange rows and columns where the last two axes change places."""
    x, order = operands[0], op.attribute("perm")
    is_turned = order is None or list(order[-2:]) == [len(order) - 1, len(order) - 2]
    return x.turned() if x is not None and is_turned else x


def _local_response(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    x = operands[0]
    if x is None or x.size > 1e30:
        return None
    alpha, beta = op.attribute("alpha", 1e-4), op.attribute("beta", 0.75)
    return x.scaled((op.attribute("bias", 1.0) + alpha * x.square) ** -beta)


def _sum_of(operands: Given, *indices: int) -> Estimate | None:
    """Return the estimate of the sum of those of some inputs of which something is known."""
    terms = [operands[k] for k in indices if k < len(operands)]
    present = [term for term in terms if term is not None]
    return reduce(e.add, present) if present else None


def _gelu(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Rectify the input, plus a bias if there is one."""
    x = None if operands[0] is None else _sum_of(operands, 0, 1)
    return None if x is None else x.rectified()


def _attention(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Take the values, made by one product with those of queries and keys, for the result."""
    width = (op.shape(1) or [None])[0]
    rows = samples.rows(op, 1, row_sums.columns, width)
    if operands[0] is None or rows is None:
        return None
    product, bias = rows.applied(operands[0]), operands[2] if op.has(2) else None
    return product if bias is None else e.add(product, bias)


def _multi_head(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Take the values, part of a packed input or one of their own, for the result."""
    source = next((index for index in (2, 1) if op.has(index)), 0)
    return None if operands[source] is None else _sum_of(operands, source, 3)


def _activated(rule: EstimateRule) -> EstimateRule:
    """Make the rule of a product that goes through an activation."""

    def activated(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        product = rule(op, operands, samples)
        if product is None or not op.attribute("activation", ""):
            return product
        return product.rectified()

    return activated


def _fused_convolution(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Convolve, and add a fourth input."""
    product = _convolution(op, operands, samples)
    added = operands[3] if op.has(3) else None
    return product if product is None or added is None else e.add(product, added)


# operators: those whose results are like their data.
_ALIKE = (
    "AveragePool Cast CastLike Clip DepthToSpace Dropout Expand Flatten Gather GatherElements "
    "GatherND GlobalAveragePool Identity Pad ReduceMean ReduceMin Reshape Resize "
    "ReverseSequence RotaryEmbedding Slice SpaceToDepth Split Squeeze Tile Unsqueeze "
    "Upsample"
)
# operators: activations that keep what is positive.
RECTIFIED = "Celu Elu Gelu HardSwish LeakyRelu Mish PRelu Relu Selu Softplus Swish"
# operators: those that choose the largest of a few elements: a deviation above the mean.
_POOLED = "GlobalMaxPool MaxPool ReduceMax TopK"

RULES: Mapping[str, EstimateRule] = {
    **dict.fromkeys(_ALIKE.split(), _first(lambda a: a)),
    **dict.fromkeys(RECTIFIED.split(), _first(Estimate.rectified)),
    **dict.fromkeys(_POOLED.split(), _first(lambda a: a._replace(mean=a.mean + a.spread))),
    "Abs": _first(_magnitude),
    "Add": _pair(lambda op, a, b: a.scaled(2.0) if op.reads_one_value else e.add(a, b)),
    "Attention": lambda op, operands, samples: operands[2],  # means of the values
    "BatchNormalization": _batch,
    "Concat": _mixed(),
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Div": _pair(_divided),
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GroupNormalization": _normalized(1, 2),
    "InstanceNormalization": _normalized(1, 2),
    "LRN": _local_response,
    "LayerNormalization": _normalized(1, 2),
    # between -103 and 89, whatever float32 it is of
    "Log": _first(lambda _: Estimate(0.0, 10.0)),
    "MatMul": _matmul,
    "Max": _bounded,
    "Mean": _mixed(),
    "Min": _bounded,
    "Mul": _pair(lambda op, a, b: e.squared(a) if op.reads_one_value else e.multiply(a, b)),
    "Neg": _first(lambda a: a.scaled(-1.0)),
    "Pow": _power,
    "Reciprocal": _first(lambda a: Estimate(1 / a.size, 0.0) if a.size else None),
    "RMSNormalization": _normalized(1),
    "SimplifiedLayerNormalization": _normalized(1),
    "ReduceL1": lambda op, operands, samples: _reduced(
        op, [None if operands[0] is None else _magnitude(operands[0])], samples
    ),
    "ReduceL2": lambda op, operands, samples: (
        None if (total := _reduced_squares(op, operands, samples)) is None else _root(total)
    ),
    "ReduceSum": _reduced,
    "ReduceSumSquare": _reduced_squares,
    "Softmax": _softmax,
    "Sqrt": _first(_root),
    "Sub": _pair(lambda _, a, b: e.add(a, b.scaled(-1.0))),
    "Sum": _folded(e.add),
    "Transpose": _transposed,
    "Where": _mixed(1, 2),
}
"""Operator of ai.onnx -> its rule; a bounded operator without one is estimated from its bounds."""

CONTRIBUTED: Mapping[str, EstimateRule] = {
    "Attention": _attention,
    "BiasAdd": lambda op, operands, samples: _sum_of(operands, 0, 1, 2),
    "BiasGelu": _gelu,
    "BiasSoftmax": _softmax,
    "EmbedLayerNormalization": _normalized(5, 6),
    "FastGelu": _gelu,
    "FusedConv": _activated(_fused_convolution),
    "FusedGemm": _activated(_gemm),
    "FusedMatMul": _gemm,
    "Gelu": _gelu,
    "GroupNorm": _normalized(1, 2),
    "GroupQueryAttention": lambda op, operands, samples: operands[2] if op.has(2) else operands[0],
    "MultiHeadAttention": _multi_head,
    "QuickGelu": _gelu,
    "RotaryEmbedding": _first(lambda a: a),
    "SkipLayerNormalization": _normalized(2, 3),
    "SkipSimplifiedLayerNormalization": _normalized(2),
}
"""Operator of com.microsoft -> its rule."""
