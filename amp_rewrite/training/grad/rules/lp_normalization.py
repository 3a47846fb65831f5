"""Gradients of normalization without parameters; g is the gradient of the output y."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradients, Rules
from amp_rewrite.training.grad.rules.arithmetic import Received, known, operands


def lp_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x / n, n the p-norm along an axis: (g - s sum(g y)) / n; s = y for p = 2, sign(x) for 1.

    Where n = 0, the gradient is 0.
    """
    (x,), g = operands(node), known(gs[0])
    y = node.outputs[0]
    axes = [node.attributes.get_int("axis", -1)]
    one = node.attributes.get_int("p", 2) == 1
    norm = b.reduce("ReduceL1" if one else "ReduceL2", x, axes)
    along = b.mul(b.sign(x) if one else y, b.reduce_sum(b.mul(g, y), axes))
    return [b.where(b.greater(norm, 0), b.div(b.sub(g, along), norm), 0)]


def lrn(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x s^-beta, s = bias + alpha / size times the sum of x^2 over `size` channels around.

    g s^-beta - 2 alpha beta / size x t, t the sum of g y / s over the channels whose window holds
    this one. Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional
    Neural Networks", 2012, section 3.3.
    """
    (x,), g = operands(node), known(gs[0])
    attributes = node.attributes
    size = attributes["size"].as_int()
    alpha, beta = attributes.get_float("alpha", 1e-4), attributes.get_float("beta", 0.75)
    before, behind = (size - 1) // 2, size - 1 - (size - 1) // 2
    total = _over_channels(b, b.square(x), before, behind)
    scale = b.add(b.mul(total, alpha / size), attributes.get_float("bias", 1.0))
    passed = b.mul(g, b.pow(scale, -beta))
    shared = _over_channels(b, b.div(b.mul(passed, x), scale), behind, before)
    return [b.sub(passed, b.mul(b.mul(x, shared), 2 * alpha * beta / size))]


def _over_channels(b: Builder, x: ir.Value, before: int, behind: int) -> ir.Value:
    """Return, for each channel, the sum over those from `before` in front to `behind` after it."""
    rest = [0] * (len(b.dims(x) or ()) - 2)
    padded = b.op("Pad", x, b.constant([0, before, *rest, 0, behind, *rest]))
    length = b.dim(x, 1)
    parts = [
        b.slice(padded, [k], b.add(length, b.constant([k])), [1])
        for k in range(before + behind + 1)
    ]
    return b.shaped_like(parts[0] if len(parts) == 1 else b.op("Sum", *parts), x)


def mean_variance_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = (x - mean) / (d + 1e-9), d the standard deviation: (g - mean(g)) r - y mean(g y) / d.

    r = 1 / (d + 1e-9); the standard adds 1e-9 in its definition.
    """
    (x,), g = operands(node), known(gs[0])
    y = node.outputs[0]
    axes = list(node.attributes.get_ints("axes", (0, 2, 3)))
    centred = b.sub(x, b.reduce_mean(x, axes))
    deviation = b.sqrt(b.reduce_mean(b.square(centred), axes))
    passed = b.div(b.sub(g, b.reduce_mean(g, axes)), b.add(deviation, 1e-9))
    return [b.sub(passed, b.mul(y, b.div(b.reduce_mean(b.mul(g, y), axes), deviation)))]


RULES: Rules = {
    "LRN": lrn,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
}
