"""The outcome for elements of a constant that are out of the range of the low type.

A mask (masks.py) ends at the lowest finite value, or at half of it where it is added to something;
a bound of Clip becomes infinite. What else reads one stays float32 (passes/keep_overflows.py).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor, filled_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.streams import Stream
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import all_end_in_ordering, sums_behind
from amp_rewrite.values.weight_stats import WeightStats


def saturation(
    type_graph: TypeGraph, stats: WeightStats, readers: Iterable[int], low: DType
) -> float:
    """Return the magnitude at which elements out of range end; 0 lets them become infinite."""
    masked = [v for v in readers if type_graph.operator_of(v).op_type != "Clip"]
    if not masked or not stats.overflow(low):
        return 0.0
    return low.max / 2 if any(sums_behind(type_graph, v) for v in masked) else low.max


def fill_saturation(context: PaintContext, vertex: int) -> float:
    """Return `saturation` for the constant that a ConstantOfShape repeats."""
    graph = context.type_graph
    value = graph.flat.outputs_of(graph.nodes[vertex])[0]
    tensor = filled_tensor(graph, value)
    if tensor is None:
        return 0.0
    stats = context.values.stats(value, tensor)
    return saturation(graph, stats, [vertex], context.low)


def overflows_below_only(constant: Stream, low: DType) -> bool:
    """Tell whether every finite element out of range is negative."""
    limit = np.float32(low.overflow)
    return not any(bool(((c >= limit) & np.isfinite(c)).any()) for c in constant.blocks())


def saturates_in_float32(context: PaintContext, value: int) -> bool:
    """Tell whether a mask out of range may end at the low type's lowest value in float32 as well.

    It is cast at run time then, which would make it infinite. In a type as wide as float32 both
    fills swallow every score, so that rows that are masked as a whole come out the same.
    """
    graph, low = context.type_graph, context.low
    if may_leave_range(low) or not context.converts_weights:
        return False
    tensor = constant_tensor(graph, value)
    return (
        tensor is not None
        and may_stand_behind_cast(context, value)
        and all_end_in_ordering(graph, value, graph.readers(value))
        and overflows_below_only(tensor.stream, low)
    )


def may_stand_behind_cast(context: PaintContext, value: int) -> bool:
    """Tell whether a Cast may come between a constant and all that reads it."""
    graph, flat = context.type_graph, context.type_graph.flat
    if flat.is_output(value):
        return False
    for slot in flat.uses(value):
        node = flat.reader(slot)
        if graph.reads[slot] == ABSENT or flat.called(node)[:2] == ("", "Cast"):
            return False
        if graph.ports_of(node).schema is None or flat.node_names[node] in context.rules.preserve:
            return False
    return True
