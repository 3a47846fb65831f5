"""Weights that are stored in 8 bits or fewer, and multiplied in floating point."""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext

_DOMAINS = ("", "com.microsoft")


def dequantizers(context: PaintContext) -> Iterator[int]:
    """Yield the DequantizeLinear of weights that may give the low type, with scales in it.

    Weight, scale and zero point are constants of the file; the target has a kernel; no scale loses
    more to rounding than the tolerance of the low type; and no weight is out of its range.
    """
    flat = context.type_graph.flat
    wanted = {
        i
        for i, o in enumerate(flat.operators)
        if o.domain in _DOMAINS and o.op_type == "DequantizeLinear" and o not in flat.functions
    }
    for node in [n for n, o in enumerate(flat.operator) if o in wanted] if wanted else ():
        if may_be_low(context, node):
            yield node


def may_be_low(context: PaintContext, node: int) -> bool:
    """Tell whether a DequantizeLinear may give the low type."""
    graph, flat = context.type_graph, context.type_graph.flat
    vertices = graph.vertices_of(node)
    if not vertices or not all(context.processable[v] and context.supported[v] for v in vertices):
        return False
    data, scale, *rest = flat.inputs_of(node)
    if not all(_is_stored(context, v) for v in (data, *rest) if v != ABSENT):
        return False
    tensor = constant_tensor(graph, scale)
    if tensor is None:
        return False
    low, stats = context.low, context.values.stats(scale, tensor)
    smallest = stats.smallest_nonzero_abs
    kept = smallest is None or smallest * low.rtol >= low.smallest_subnormal / 2
    largest = context.values.intervals[flat.outputs_of(node)[0]].magnitude
    return kept and not stats.infs and largest < low.overflow


def _is_stored(context: PaintContext, value: int) -> bool:
    """Tell whether a value of whatever type is a constant of the file."""
    flat = context.type_graph.flat
    if flat.is_initializer(value):
        return not flat.is_input(value) and value not in flat.bound
    node = flat.producer[value]
    return node != ABSENT and flat.held(node) is not None
