"""Gradients of Slice and Pad; g is the gradient of the output y."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands, rank_of
from amp_rewrite.grad.scatter import non_negative, scatter_axis


def slice_(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x[start : end : step]: zeros with g at the positions that y was read from.

    Axes with step 1 are padded, all in one Pad. Along others, g is scattered to the positions,
    which are what the same Slice takes out of 0, 1, 2, ...
    """
    g, x = known(gs[0]), operands(node)[0]
    starts, ends = operands(node)[1:3]
    axes, steps = (*node.inputs[3:], None, None)[:2]
    if steps is not None and any(step != 1 for step in b.ints(steps) or [0]):
        bounds, listed = _bounds(node, b, (starts, ends, steps), axes)
        return [_scattered(b, g, x, bounds, listed)]
    static = _static_pads(b, x, starts, ends, axes)
    pads = b.vector(static) if static else _computed_pads(b, g, x, starts, axes)
    return [b.shaped_like(b.op("Pad", g, pads), x)]


Bounds = tuple[ir.Value, ir.Value, ir.Value]
"""Starts, ends and steps: 1-D integers."""


def _bounds(
    node: ir.Node, b: Builder, bounds: Bounds, axes: ir.Value | None
) -> tuple[Bounds, list[int]]:
    """Return bounds and the axes that they are for: those given, or all if they are computed."""
    count = (b.dims(bounds[0]) or (None,))[0]
    if axes is None and count is not None:
        return bounds, list(range(count))
    listed = b.ints(axes)
    if listed is not None:
        return bounds, listed
    x = operands(node)[0]
    rank = rank_of(node, b, x)
    wide = [b.cast(v, ir.DataType.INT64) for v in bounds]
    if axes is None:
        axes = b.range(0, b.op("Size", bounds[0]))
    axes = non_negative(b, axes, b.constant(rank))
    neutral = (b.constant([0] * rank), b.shape(x), b.constant([1] * rank))
    start, end, step = (
        b.op("ScatterElements", whole, axes, part)
        for whole, part in zip(neutral, wide, strict=True)
    )
    return (start, end, step), list(range(rank))


def _scattered(
    b: Builder,
    g: ir.Value,
    x: ir.Value,
    bounds: Bounds,
    axes: list[int],
) -> ir.Value:
    for position, axis in enumerate(axes):
        length = b.dim(x, axis)
        every = b.range(0, b.squeeze(length, [0]))
        first = b.constant([position])
        start, end, step = (b.cast(b.gather(v, first), ir.DataType.INT64) for v in bounds)
        indices = b.op("Slice", every, start, end, b.constant([0]), step)
        g = scatter_axis(b, g, indices, axis, length, unique=True)
    return b.shaped_like(g, x)


def _static_pads(
    b: Builder, x: ir.Value, starts: ir.Value, ends: ir.Value, axes: ir.Value | None
) -> list[int]:
    """Return how many zeros go before and after each axis; empty if it is not known now."""
    dims, first, last = b.dims(x), b.ints(starts), b.ints(ends)
    if dims is None or first is None or last is None:
        return []
    listed = list(range(len(first))) if axes is None else b.ints(axes)
    if listed is None or any(dims[axis] is None for axis in listed):
        return []
    before, behind = [0] * len(dims), [0] * len(dims)
    for axis, start, end in zip(listed, first, last, strict=True):
        length = dims[axis] or 0
        low, high, _ = slice(start, end).indices(length)
        before[axis], behind[axis] = low, length - max(low, high)
    return before + behind


def _computed_pads(
    b: Builder, g: ir.Value, x: ir.Value, starts: ir.Value, axes: ir.Value | None
) -> ir.Value:
    shape = b.shape(x)
    rank = b.op("Shape", shape)
    if axes is None:
        axes = b.range(0, b.op("Size", starts))
    axes = non_negative(b, axes, rank)
    lengths = b.gather(shape, axes)
    starts = non_negative(b, starts, lengths)
    starts = b.minimum(b.maximum(starts, 0), lengths)
    zeros = b.zeros(rank, ir.DataType.INT64)
    before = b.op("ScatterElements", zeros, axes, starts)
    return b.concat([before, b.sub(b.sub(shape, before), b.shape(g))], 0)


def pad(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with more (or fewer) elements around.

    Mode constant: g cropped, and for the constant what of g is not in the crop. Other modes: g
    summed to the positions that y was read from, which are what the same Pad makes of 0, 1, 2, ...
    """
    g, x = known(gs[0]), operands(node)[0]
    pads = _pads(node, b, x)
    mode = node.attributes.get_string("mode", "constant")
    if mode != "constant":
        return [_folded(node, b, g, x, pads, mode)]
    cropped = b.shaped_like(b.op("Pad", g, _negated(b, pads)), x)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        outside = b.sub(b.reduce_sum(g, keepdims=False), b.reduce_sum(cropped, keepdims=False))
        return [cropped, None, b.reshape_like(outside, node.inputs[2])]
    return [cropped]


def _negated(b: Builder, pads: ir.Value) -> ir.Value:
    listed = b.ints(pads)
    return b.neg(pads) if listed is None else b.constant([-p for p in listed])


def _pads(node: ir.Node, b: Builder, x: ir.Value) -> ir.Value:
    """Return the amounts before and after every axis, those not padded included."""
    pads = b.cast(operands(node)[1], ir.DataType.INT64)
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    if axes is None:
        return pads
    rank, listed, amounts = b.rank(x), b.ints(axes), b.ints(pads)
    if rank is not None and listed is not None and amounts is not None:
        full = np.zeros((2, rank), np.int64)
        full[:, listed] = np.reshape(amounts, (2, len(listed)))
        return b.constant(full.reshape(-1))
    ranks = b.op("Shape", b.shape(x))
    axes = non_negative(b, axes, ranks)
    zeros = b.zeros(b.mul(ranks, 2), ir.DataType.INT64)
    return b.op("ScatterElements", zeros, b.concat([axes, b.add(axes, ranks)], 0), pads)


def _folded(
    node: ir.Node, b: Builder, g: ir.Value, x: ir.Value, pads: ir.Value, mode: str
) -> ir.Value:
    rank, listed = rank_of(node, b, x), b.ints(pads)
    for axis in range(rank):
        if listed is not None and not listed[axis] and not listed[axis + rank]:
            continue
        length = b.dim(x, axis)
        amounts = b.gather(pads, b.constant([axis, axis + rank]))
        every = b.range(0, b.squeeze(length, [0]))
        indices = b.op("Pad", every, amounts, mode=mode)
        g = scatter_axis(b, g, indices, axis, length)
    return b.shaped_like(g, x)


RULES: Rules = {"Pad": pad, "Slice": slice_}
