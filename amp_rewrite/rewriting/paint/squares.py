"""Squares that feed a sum: the middle of a decomposed LayerNormalization or RMSNormalization.

Exporters write x^2 as Pow(x, 2), which the deny list names, or as Mul(x, x), which no list can
name. Sums of squares reached 78,107 (T5) and 124,363 (magika) in real models; float16 ends at
65,504.
"""

from __future__ import annotations

from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Reason
from amp_rewrite.rewriting.paint.reach import walk
from amp_rewrite.values.patterns.plain_view import PlainView

_SMALL = 256.0
"""Powers of bounded numbers up to here are far from where the low type ends."""


def find_squares(context: PaintContext) -> dict[int, Mark]:
    """Return a deny mark for every Mul(x, x) that reaches a denied reduction through clear ones.

    It is a square as well where an Identity stands in front of an x.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    view = PlainView(graph)
    found: dict[int, Mark] = {}
    for node in flat.nodes_of("Mul"):
        first, second = flat.inputs_of(node)
        if view.source(first) != view.source(second):
            continue
        for vertex in graph.vertices_of(node):
            reduction = _denied_reduction(context, vertex)
            if reduction is not None and context.list_of(vertex) is ListName.INFER:
                detail = f"a square summed by {graph.node_name(reduction)}"
                found[vertex] = Mark(Color.DENY, Reason.SQUARE, None, detail)
    return found


def find_small_powers(context: PaintContext) -> list[int]:
    """Return the vertices of Pow that cannot overflow, and that no denied reduction adds up.

    The activation of vocoders, Snake, is x + sin(a x)^2 / a: its square is 1 at most.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    found: list[int] = []
    for node in flat.nodes_of("Pow"):
        vertices = graph.vertices_of(node)
        if not any(context.list_of(v) is ListName.DENY for v in vertices):
            continue
        result = context.values.intervals[flat.outputs_of(node)[0]]
        if result.magnitude <= _SMALL and all(
            _denied_reduction(context, v) is None for v in vertices
        ):
            found += vertices
    return found


def _denied_reduction(context: PaintContext, vertex: int) -> int | None:
    graph = context.type_graph
    reached = walk([vertex], graph.successors, context.on(ListName.CLEAR, ListName.DENY))
    denied = (v for v in reached if context.list_of(v) is ListName.DENY)
    return next((v for v in denied if has(graph.operator_of(v), Trait.SUMS_UP)), None)
