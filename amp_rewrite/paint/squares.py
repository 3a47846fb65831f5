"""Squares that feed a sum: the middle of a decomposed LayerNormalization or RMSNormalization.

Exporters write x^2 as Pow(x, 2), which the deny list names, or as Mul(x, x), which no list can
name. Sums of squares reached 78,107 (T5) and 124,363 (magika) in real models; float16 ends at
65,504.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Reason
from amp_rewrite.paint.reach import walk


def find_squares(context: PaintContext) -> dict[Vertex, Mark]:
    """Return a deny mark for every Mul(x, x) that reaches a denied reduction through clear ones."""
    found: dict[Vertex, Mark] = {}
    for node, vertices in context.type_graph.nodes.items():
        if node.op_type != "Mul" or node.domain != "" or node.inputs[0] is not node.inputs[1]:
            continue
        for vertex in vertices.all:
            reduction = _denied_reduction(context, vertex)
            if reduction is not None and context.list_of(vertex) is ListName.INFER:
                detail = f"a square summed by {reduction.node.name}"
                found[vertex] = Mark(Color.DENY, Reason.SQUARE, None, detail)
    return found


def _denied_reduction(context: PaintContext, vertex: Vertex) -> Vertex | None:
    reached = walk(
        [vertex],
        context.type_graph.graph.successors,
        lambda v: context.list_of(v) in (ListName.CLEAR, ListName.DENY),
    )
    return next(
        (v for v in reached if context.list_of(v) is ListName.DENY and has(v.node, Trait.SUMS_UP)),
        None,
    )
