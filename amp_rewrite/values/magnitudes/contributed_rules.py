"""How operators of ONNX Runtime (com.microsoft) change mean and deviation.

Evidence: a residual stream through SkipSimplifiedLayerNormalization: its overflow is not seen
without them (tests/rewriting/test_kernel_first.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from amp_rewrite.values.intervals import row_sums
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes import estimate_rules as standard
from amp_rewrite.values.magnitudes.estimate import Estimate
from amp_rewrite.values.magnitudes.estimate_rules import EstimateRule, Given, Samples


def _like(op_type: str) -> EstimateRule:
    """Return the rule of an operator of ai.onnx."""
    return standard.RULES[op_type]


def _sum(operands: Given, *indices: int) -> Estimate | None:
    """Return the estimate of the sum of those of some inputs of which something is known."""
    terms = [operands[k] for k in indices if k < len(operands)]
    present = [term for term in terms if term is not None]
    return reduce(e.add, present) if present else None


def _gelu(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Rectify the input, plus a bias if there is one."""
    x = None if operands[0] is None else _sum(operands, 0, 1)
    return None if x is None else x.rectified()


def _matmul(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    layout = row_sums.rows if op.attribute("transB", 0) else row_sums.columns
    rows = standard.rows_of(op, samples, 1, layout)
    if rows is None:
        product = standard.computed_product(op, operands)
    else:
        product = None if operands[0] is None else rows.applied(operands[0])
    return None if product is None else product.scaled(op.attribute("alpha", 1.0))


def _attention(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Take the values, made by one product with those of queries and keys, for the result."""
    width = (op.shape(1) or [None])[0]
    rows = standard.rows_of(op, samples, 1, row_sums.columns, width)
    if operands[0] is None or rows is None:
        return None
    product, bias = rows.applied(operands[0]), operands[2] if op.has(2) else None
    return product if bias is None else e.add(product, bias)


def _multi_head(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Take the values, part of a packed input or one of their own, for the result."""
    source = next((index for index in (2, 1) if op.has(index)), 0)
    return None if operands[source] is None else _sum(operands, source, 3)


def _activated(rule: EstimateRule) -> EstimateRule:
    """Make the rule of a product that goes through an activation."""

    def activated(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
        product = rule(op, operands, samples)
        if product is None or not op.attribute("activation", ""):
            return product
        return product.rectified()

    return activated


def _convolution(op: Operation, operands: Given, samples: Samples) -> Estimate | None:
    """Convolve, and add a fourth input."""
    product = _like("Conv")(op, operands, samples)
    added = operands[3] if op.has(3) else None
    return product if product is None or added is None else e.add(product, added)


RULES: Mapping[str, EstimateRule] = {
    "Attention": _attention,
    "BiasAdd": lambda op, operands, samples: _sum(operands, 0, 1, 2),
    "BiasGelu": _gelu,
    "BiasSoftmax": _like("Softmax"),
    "EmbedLayerNormalization": standard.normalized(5, 6),
    "FastGelu": _gelu,
    "FusedConv": _activated(_convolution),
    "FusedGemm": _activated(_like("Gemm")),
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "GroupNorm": standard.normalized(1, 2),
    "GroupQueryAttention": lambda op, operands, samples: operands[2] if op.has(2) else operands[0],
    "MultiHeadAttention": _multi_head,
    "QuickGelu": _gelu,
    "RotaryEmbedding": _like("Identity"),
    "SkipLayerNormalization": standard.normalized(2, 3),
    "SkipSimplifiedLayerNormalization": standard.normalized(2),
}
"""Operator of com.microsoft -> its rule."""
