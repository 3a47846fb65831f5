"""What becomes of the elements of a constant that are out of the range of the low type.

Minus infinity plus a fully masked row is NaN after Softmax, so that a mask (paint/masks.py) ends at
the lowest finite value; at half of it where it is added to something, for -65504 + -20 is minus
infinity again. A bound of Clip becomes infinite, which bounds nothing either. There are no others:
what else reads a constant out of range stays float32 (rewriting/paint/passes/keep_overflows.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import filled_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import sums_behind
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
