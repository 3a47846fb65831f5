"""Weights that are stored in 8 bits or fewer, and multiplied in floating point."""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.constants import constant_tensor, stored_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext


def dequantizers(context: PaintContext) -> Iterator[int]:
    """Return the DequantizeLinear of weights that may give the low type, with scales in it.

    Weight, scale and zero point are constants of the file; the target has a kernel; no scale loses
    more to rounding than the tolerance of the low type; and no weight is out of its range.
    """
    nodes = context.values.match.nodes("DequantizeLinear", "com.microsoft::DequantizeLinear")
    return (node for node in nodes if may_be_low(context, node))


def may_be_low(context: PaintContext, node: int) -> bool:
    """Tell whether a DequantizeLinear may give the low type."""
    graph, flat = context.type_graph, context.type_graph.flat
    vertices = graph.vertices_of(node)
    if not vertices or not all(context.processable[v] and context.supported[v] for v in vertices):
        return False
    data, scale, *rest = flat.inputs_of(node)
    if any(stored_tensor(flat, v) is None for v in (data, *rest) if v != ABSENT):
        return False
    tensor = constant_tensor(graph, scale)
    if tensor is None:
        return False
    low, stats = context.low, context.values.stats(scale, tensor)
    smallest = stats.smallest_nonzero_abs
    kept = smallest is None or smallest * low.rtol >= low.smallest_subnormal / 2
    largest = context.values.intervals[flat.outputs_of(node)[0]].magnitude
    return kept and not stats.infs and largest < low.overflow
