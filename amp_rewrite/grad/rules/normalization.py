"""Gradients of normalization; g is the gradient of the output y.

All that centre and scale have one formula. With h = (x - mean) r, r = 1 / sqrt(var + epsilon), and
u the gradient of h, the gradient of x is r (u - mean(u) - h mean(u h)): Ioffe and Szegedy, "Batch
Normalization", 2015, https://arxiv.org/abs/1502.03167, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.grad.builder.broadcasting import sum_to
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import (
    Received,
    extra_output,
    known,
    operands,
    rank_of,
)

_DEFAULT_EPSILON = 1e-5


def layer_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = h scale + bias, h over the axes from `axis` on: the module's formula with u = g scale.

    What arrives at the outputs mean and r adds g_mean / n and -g_r r^2 h / n, n the elements
    normalized. Mean and r are taken from the forward node unless it computes them in less precision
    than x has.
    """
    x, scale = operands(node)[:2]
    axes = _from_axis(node, b, x)
    wide = _stash_type(node, b, x)
    mean, r = _layer_statistics(node, b, x, axes, wide)
    h = b.mul(b.sub(b.cast(x, wide), mean), r)
    parts: list[ir.Value] = []
    by_scale = by_bias = None
    if gs[0] is not None:
        g = b.cast(gs[0], wide)
        by_scale, by_bias = sum_to(b, b.mul(g, h), scale), gs[0]
        u = b.mul(g, b.cast(scale, wide))
        inner = b.sub(b.sub(u, b.reduce_mean(u, axes)), b.mul(h, b.reduce_mean(b.mul(u, h), axes)))
        parts.append(b.mul(inner, r))
    count = b.div(b.size(x), b.size(mean))
    if len(gs) > 1 and gs[1] is not None:
        parts.append(b.expand_like(b.div(b.cast(gs[1], wide), b.cast(count, wide)), x))
    if len(gs) > 2 and gs[2] is not None:
        by_r = b.mul(b.cast(gs[2], wide), b.square(r))
        parts.append(b.neg(b.mul(h, b.div(by_r, b.cast(count, wide)))))
    total = parts[0] if len(parts) == 1 else b.op("Sum", *parts)
    return [total, by_scale, by_bias][: len(node.inputs)]


def _layer_statistics(
    node: ir.Node, b: Builder, x: ir.Value, axes: Sequence[int], wide: ir.DataType
) -> tuple[ir.Value, ir.Value]:
    """Return mean and r, of x's rank."""
    if wide is ir.DataType.DOUBLE:
        x = b.cast(x, wide)
        mean = b.reduce_mean(x, axes)
        variance = b.reduce_mean(b.square(b.sub(x, mean)), axes)
        return mean, _inverse_root(node, b, variance)
    dims = b.symbolic_dims(x) or ()
    kept = [1 if axis in axes else d for axis, d in enumerate(dims)]
    mean = extra_output(b, node, 1, wide, kept)
    return mean, extra_output(b, node, 2, wide, kept)


def _stash_type(node: ir.Node, b: Builder, x: ir.Value) -> ir.DataType:
    """Return the type to compute in: stash_type, or the type of x if that is wider."""
    stash = ir.DataType(node.attributes.get_int("stash_type", ir.DataType.FLOAT.value))
    own = b.type_of(x)
    return own if own.itemsize > stash.itemsize else stash


def _from_axis(node: ir.Node, b: Builder, x: ir.Value) -> list[int]:
    """Return the axes from the attribute `axis` on."""
    rank = rank_of(node, b, x)
    return list(range(node.attributes.get_int("axis", -1) % rank, rank))


def _inverse_root(node: ir.Node, b: Builder, variance: ir.Value) -> ir.Value:
    epsilon = node.attributes.get_float("epsilon", _DEFAULT_EPSILON)
    return b.reciprocal(b.sqrt(b.add(variance, epsilon)))


def rms_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = h scale, h = x r, r = 1 / sqrt(mean(x^2) + epsilon): r (u - h mean(u h)), u = g scale.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019,
    https://arxiv.org/abs/1910.07467.
    """
    x, scale = operands(node)[:2]
    axes = _from_axis(node, b, x)
    wide = _stash_type(node, b, x)
    wide_x, g = b.cast(x, wide), b.cast(known(gs[0]), wide)
    r = _inverse_root(node, b, b.reduce_mean(b.square(wide_x), axes))
    h = b.mul(wide_x, r)
    u = b.mul(g, b.cast(scale, wide))
    inner = b.sub(u, b.mul(h, b.reduce_mean(b.mul(u, h), axes)))
    return [b.mul(inner, r), b.mul(g, h)]


def instance_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = h scale + bias, h over the spatial axes: the formula of the module with u = g scale."""
    x, scale, bias = operands(node)
    rank, g = rank_of(node, b, x), known(gs[0])
    axes = list(range(2, rank))
    mean = b.reduce_mean(x, axes)
    centred = b.sub(x, mean)
    r = _inverse_root(node, b, b.reduce_mean(b.square(centred), axes))
    h = b.mul(centred, r)
    mean_g, mean_gh = b.reduce_mean(g, axes), b.reduce_mean(b.mul(g, h), axes)
    inner = b.sub(b.sub(g, mean_g), b.mul(h, mean_gh))
    by_x = b.mul(inner, b.mul(r, _per_channel(b, scale, rank)))
    others = [0, *axes]
    by_scale = b.reduce_sum(b.mul(g, h), others, keepdims=False)
    by_bias = b.reduce_sum(g, others, keepdims=False)
    return [by_x, b.shaped_like(by_scale, scale), b.shaped_like(by_bias, bias)]


def _per_channel(b: Builder, x: ir.Value, rank: int) -> ir.Value:
    """Return (C,) as (1, C, 1, ..), which broadcasts along a channel axis 1.

    It has the rank of what it is multiplied by: OpenVINO keeps channels last only where all have.
    """
    return b.unsqueeze(x, [0, *range(2, rank)])


def batch_normalization(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = h scale + bias, h over all axes but the channels': the formula of the module.

    Outside training, mean and variance are inputs, and all is elementwise: with k = scale r, the
    gradients are g k; the sums of g h, g, -g k and -g k (x - mean) r^2 / 2. In training, the inputs
    mean and variance, and the outputs running_mean and running_var, are state, not differentiated.
    """
    if node.attributes.get_int("training_mode", 0):
        return _batch_training(node, b, known(gs[0]))
    x, scale, bias, mean, variance = operands(node)
    rank, g = rank_of(node, b, x), known(gs[0])
    axes = [0, *range(2, rank)]
    wide = b.type_of(mean)
    r = _inverse_root(node, b, variance)
    slope = b.mul(b.cast(scale, wide), r)
    by_x = b.mul(g, b.cast_like(_per_channel(b, slope, rank), g))
    total = b.cast(b.reduce_sum(g, axes, keepdims=False), wide)
    centred = b.sub(b.cast(x, wide), _per_channel(b, mean, rank))
    moment = b.reduce_sum(b.mul(b.cast(g, wide), centred), axes, keepdims=False)
    by_scale, by_mean = b.mul(moment, r), b.neg(b.mul(total, slope))
    by_variance = b.mul(b.mul(b.mul(moment, slope), b.square(r)), -0.5)
    like = [(by_scale, scale), (total, bias), (by_mean, mean), (by_variance, variance)]
    return [by_x, *(b.shaped_like(gradient, value) for gradient, value in like)]


def _batch_training(node: ir.Node, b: Builder, g: ir.Value) -> Gradients:
    x, scale, bias = operands(node)[:3]
    rank = rank_of(node, b, x)
    axes = [0, *range(2, rank)]
    wide = max(b.type_of(x), b.type_of(node.inputs[3] or x), key=lambda t: t.itemsize)
    centred = b.cast(x, wide)
    centred = b.sub(centred, b.reduce_mean(centred, axes))
    r = _inverse_root(node, b, b.reduce_mean(b.square(centred), axes))
    g = b.cast(g, wide)
    total = b.reduce_sum(g, axes)
    moment = b.reduce_sum(b.mul(g, centred), axes)
    # By x: (g - total / n - centred moment r^2 / n) r scale; small tensors are multiplied first.
    fraction = b.div(b.cast(b.size(scale), wide), b.cast(b.size(x), wide))
    slope = b.mul(moment, b.mul(b.square(r), fraction))
    inner = b.sub(b.sub(g, b.mul(total, fraction)), b.mul(centred, slope))
    by_x = b.mul(inner, b.mul(r, b.cast(_per_channel(b, scale, rank), wide)))
    by_scale = b.reshape_like(b.mul(moment, r), scale)
    return [b.shaped_like(by_x, x), by_scale, b.reshape_like(total, bias)]


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
    """Return, for each channel, the sum over those `before` places before to `behind` after it."""
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
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": lrn,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "RMSNormalization": rms_normalization,
}
