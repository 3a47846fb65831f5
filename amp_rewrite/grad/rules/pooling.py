"""Gradients of pooling; g is the gradient of the output y."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, extra_output, known, operands
from amp_rewrite.grad.rules.formula import refuse
from amp_rewrite.grad.rules.window import (
    Window,
    ranked,
    read_window,
    scatter_windows,
    spatial,
    static,
    tail,
)


def max_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x[indices]: g added at the indices, which the forward node gives.

    ONNX Runtime's fast kernel gives no indices. For windows of 2 x 2 side by side, the usual ones,
    the place of the largest is found again by comparing x with y. Version 1.31.1, CPU time of
    forward and backward in ms, x of (64, 64, 8, 8), (64, 32, 28, 28) and (32, 64, 32, 32): indices
    0.8, 7.1, 7.4; comparisons 0.6, 4.3, 3.7; SpaceToDepth and ArgMax 0.7, 3.4, 6.7.
    """
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    window = read_window(node, b, x, auto_pad=False)
    if len(node.outputs) == 1 and _in_blocks(node, b, x, window):
        return [_by_blocks(b, x, node.outputs[0], g)]
    indices = _indices(node, b)
    zeros = b.zeros(b.reshape(b.size(x), [1]), b.type_of(g))
    flat = [b.reshape(v, [-1]) for v in (indices, g)]
    reduction = "add" if window.overlaps else None
    total = b.op("ScatterElements", zeros, *flat, axis=0, reduction=reduction)
    return [b.reshape_like(total, x)]


def _in_blocks(node: ir.Node, b: Builder, x: ir.Value, window: Window) -> bool:
    """Return whether windows of 2 x 2 are known to lie side by side and to cover x."""
    lengths = static((b.dims(x) or (None,))[1:])
    two = (2, 2)
    fits = window.kernel == window.strides == two and window.dilations == (1, 1)
    padded = any(window.pads) or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
    return bool(lengths) and fits and not padded and not any(n % 2 for n in lengths[1:])


def _by_blocks(b: Builder, x: ir.Value, y: ir.Value, g: ir.Value) -> ir.Value:
    """Return g at the first element of each block of 2 x 2 that equals y, 0 elsewhere."""
    channels = (static((b.dims(x) or (None,))[1:]) or (0,))[0]
    blocks = b.op("SpaceToDepth", x, blocksize=2)
    parts: list[ir.Value] = []
    left = g
    for place in range(3):
        equal = b.equal(b.slice(blocks, [place * channels], [(place + 1) * channels], [1]), y)
        # Not by Where: ONNX Runtime's branches at each element, which takes eight times as long.
        parts.append(b.mul(left, b.cast_like(equal, left)))
        left = b.sub(left, parts[-1])
    # Columns side by side, then rows: with DepthToSpace, the whole took 1.3 to 1.5 times as long.
    apart = [b.unsqueeze(part, [3, 5]) for part in (*parts, left)]
    rows = [b.concat(apart[:2], 5), b.concat(apart[2:], 5)]
    return b.reshape_like(b.concat(rows, 3), x)


def _indices(node: ir.Node, b: Builder) -> ir.Value:
    """Return row-major indices into the flat x."""
    if node.attributes.get_int("storage_order", 0) == 0:
        return extra_output(b, node, 1, ir.DataType.INT64, b.symbolic_dims(node.outputs[0]))
    kept = {k: a.value for k, a in node.attributes.items() if k != "storage_order"}
    return b.op("MaxPool", node.inputs[0], outputs=2, **kept)[1]


def max_unpool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x at indices into the flat y, zeros elsewhere: g at the indices."""
    x, indices = operands(node)[:2]
    flat = [b.reshape(v, [-1]) for v in (known(gs[0]), indices)]
    return [b.reshape_like(b.op("GatherElements", *flat, axis=0), x)]


def col2im(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the sum of blocks, each at its position: the blocks of g, a convolution with each tap."""
    x, _, block = operands(node)
    kernel = b.ints(block)
    if kernel is None:
        raise refuse(node, "a Col2Im of computed blocks")
    g = known(gs[0])
    if g.shape is None:
        g.shape = ir.Shape([None] * (2 + len(kernel)))
    taps = np.eye(prod(kernel), dtype=b.type_of(g).numpy()).reshape(-1, 1, *kernel)
    kept = ("dilations", "pads", "strides")
    how: dict[str, Any] = {key: a.as_ints() for key, a in node.attributes.items() if key in kept}
    return [b.reshape_like(b.op("Conv", _one_channel(b, g), b.constant(taps), **how), x)]


def average_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = mean of the x in a window: g / n, added to each of them, n the elements counted."""
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    window = read_window(node, b, x)
    include = bool(node.attributes.get_int("count_include_pad", 0))
    taps = prod(window.kernel or ())
    if not window.ceil and (include or not any(window.pads)):
        return [_unpooled(b, b.mul(g, 1 / taps), x, window)]
    return [_unpooled(b, b.div(g, _counts(b, x, g, window, include=include)), x, window)]


def _unpooled(b: Builder, g: ir.Value, x: ir.Value, window: Window) -> ir.Value:
    """Return g added to every element of its window: a convolution transposed, all weights 1."""
    ones = b.constant(np.ones((1, 1, *(window.kernel or ())), b.type_of(g).numpy()))
    scattered = scatter_windows(b, _one_channel(b, g), ones, _one_channel(b, x), window)
    return b.reshape_like(scattered, x)


def _one_channel(b: Builder, x: ir.Value) -> ir.Value:
    """Return x as (N C, 1, *lengths)."""
    dims = b.symbolic_dims(x) or ()
    merged = b.reshape(x, b.concat([b.constant([-1, 1]), tail(b, x)], 0))
    merged.shape = ir.Shape([None, 1, *dims[2:]])
    return merged


def _counts(b: Builder, x: ir.Value, g: ir.Value, window: Window, *, include: bool) -> ir.Value:
    """Return how many elements each position counts: (*positions) in the type of g.

    Padding counts if `include`; what lies after it never does.
    """
    rank = len(window.strides)
    total = b.constant(1, b.type_of(g))
    for axis in range(rank):
        low = -window.begin[axis] if include else 0
        high = b.add(b.dim(x, 2 + axis), window.end[axis] if include else 0)
        taps = np.arange((window.kernel or ())[axis]) * window.dilations[axis]
        moved = b.range(0, b.squeeze(b.dim(g, 2 + axis), [0]))
        starts = b.sub(b.mul(moved, window.strides[axis]), window.begin[axis])
        met = b.add(b.unsqueeze(starts, [1]), b.constant(taps.astype(np.int64)))
        inside = b.logical_and(b.greater_or_equal(met, low), b.less(met, high))
        count = b.reduce_sum(b.cast_like(inside, g), [1], keepdims=False)
        total = b.mul(total, b.unsqueeze(count, list(range(1, rank - axis))))
    return total


def lp_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = (sum of |x|^p in a window)^(1/p): sign(x) |x|^(p-1) times the sum of g y^(1-p)."""
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    window = read_window(node, b, x)
    p = node.attributes.get_int("p", 2)
    return [b.mul(_lp_inner(b, x, p), _unpooled(b, _lp_outer(b, g, node.outputs[0], p), x, window))]


def _lp_inner(b: Builder, x: ir.Value, p: int) -> ir.Value:
    """Return sign(x) |x|^(p-1)."""
    if p == 1:
        return b.sign(x)
    return x if p == 2 else b.mul(x, b.pow(b.abs(x), p - 2))


def _lp_outer(b: Builder, g: ir.Value, y: ir.Value, p: int) -> ir.Value:
    """Return g y^(1-p), and 0 where y = 0."""
    if p == 1:
        return g
    positive = b.greater(y, 0)
    return b.where(positive, b.div(g, b.pow(b.where(positive, y, 1), p - 1)), 0)


def global_average_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = mean of the n x of a channel: g / n."""
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    lengths = static(spatial(b, x))
    if lengths is not None:
        return [b.expand_like(b.mul(g, 1 / max(prod(lengths), 1)), x)]
    count = b.op("ReduceProd", tail(b, x), keepdims=0)
    return [b.expand_like(b.div(g, b.cast_like(count, g)), x)]


def global_max_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = largest x of a channel: g for the first such x."""
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    flat = b.reshape(x, [0, 0, -1])
    largest = b.op("ArgMax", flat, axis=2, keepdims=1)
    positions = b.range(0, b.squeeze(b.op("ReduceProd", tail(b, x), keepdims=1), [0]))
    chosen = b.where(b.equal(positions, largest), b.reshape(g, [0, 0, -1]), 0)
    return [b.reshape_like(chosen, x)]


def global_lp_pool(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = (sum of |x|^p of a channel)^(1/p): g y^(1-p) sign(x) |x|^(p-1)."""
    (x,) = operands(node)
    g = ranked(known(gs[0]), x)
    p = node.attributes.get_int("p", 2)
    return [b.mul(_lp_inner(b, x, p), _lp_outer(b, g, node.outputs[0], p))]


RULES: Rules = {
    "AveragePool": average_pool,
    "Col2Im": col2im,
    "GlobalAveragePool": global_average_pool,
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_max_pool,
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
}
