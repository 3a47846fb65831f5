"""Undo broadcasting."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import Length


def sum_to(b: Builder, x: ir.Value, like: ir.Value) -> ir.Value:
    """Return x summed to the shape of `like`, which broadcasts to that of x.

    One reduction at most. What lengths tell is decided now; where a length of `like` might
    turn out to be 1, the axes are computed when the graph runs.
    """
    outer, inner = b.symbolic_dims(x), b.symbolic_dims(like)
    if outer is None or inner is None:
        return _sum_to_computed(b, x, like)
    lead = len(outer) - len(inner)
    axes = list(range(lead))
    for axis, length in enumerate(inner, lead):
        if length == 1 and outer[axis] != 1:
            axes.append(axis)
        elif _may_be_one(length, outer[axis]):
            return _sum_to_computed(b, x, like)
    if len(axes) == lead:
        return b.shaped_like(b.reduce_sum(x, axes, keepdims=False), like)
    total = b.reduce_sum(x, axes)
    if lead:
        total = b.squeeze(total, range(lead))
    return b.shaped_like(total, like)


def _sum_to_computed(b: Builder, x: ir.Value, like: ir.Value) -> ir.Value:
    """Sum over the axes at which the shape of `like`, padded to the rank of x, is 1."""
    target, lead = b.shape(like), _missing_axes(b, x, like)
    padded = target if lead is None else b.op("Concat", lead, target, axis=0)
    axes = b.squeeze(b.op("NonZero", b.equal(padded, b.constant([1]))), [0])
    total = b.op("ReduceSum", x, axes, keepdims=1, noop_with_empty_axes=1)
    if lead is not None:
        total = b.reshape_exactly(total, target)
    return b.shaped_like(total, like)


def _missing_axes(b: Builder, x: ir.Value, like: ir.Value) -> ir.Value | None:
    """Return a 1 for each axis that x has more than `like`; None if it has no more."""
    outer, inner = b.rank(x), b.rank(like)
    if outer is not None and inner is not None:
        return b.constant([1] * (outer - inner)) if outer > inner else None
    missing = b.op("Sub", b.op("Size", b.shape(x)), b.op("Size", b.shape(like)))
    return b.expand(b.constant([1]), b.op("Reshape", missing, b.constant([1])))


def _may_be_one(length: Length, outer: Length) -> bool:
    """Return whether an axis may be 1 where the other is longer, for all that is known."""
    if isinstance(length, int) or outer == 1:
        return False
    return length is None or length != outer
