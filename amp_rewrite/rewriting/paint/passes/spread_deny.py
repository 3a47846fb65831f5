"""P2: what follows a numerically dangerous operator stays float32 as well.

Evidence: magika in float16: 48 low nodes without the pass, among them what follows Exp and Softmax;
26 with it.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason
from amp_rewrite.values.patterns.plain_view import PlainView

_SMALL = 256.0
"""Powers of bounded numbers up to here are far from where the low type ends."""


@paints("spread-deny", Place(Stage.COLORING, 10))
def spread_deny(context: PaintContext, painting: Painting) -> Marks:
    """Deny the deny list and every infer vertex that it reaches forward through clear ones."""
    if context.force_all:
        return {}
    graph = context.type_graph
    roots = {v: m for v, m in _find_squares(context).items() if not painting.is_allow(v)}
    small = _small_powers(context)
    denied = vertices_in(context.on(ListName.DENY) & ~painting.allow & ~graph.mask(small))
    roots |= context.marks_of_entries(denied, Color.DENY, Reason.DENY_LIST)
    infer = [v for v in vertices_in(context.on(ListName.INFER)) if v not in roots]
    upstream = walk([*roots, *infer], graph.predecessors, context.on(ListName.CLEAR))
    reached = walk(roots, graph.successors, graph.mask(upstream) & ~painting.marked)
    marks = {
        v: Mark(Color.DENY, Reason.DOWNSTREAM_OF_DENY, parent)
        for v, parent in reached.items()
        if parent is not None
    }
    apart = context.marks_of_entries(small, Color.NONE, Reason.DENY_LIST)
    return {**apart, **roots, **marks}


def _find_squares(context: PaintContext) -> dict[int, Mark]:
    """Return a deny mark for every Mul(x, x) that reaches a denied reduction through clear ones."""
    graph, flat = context.type_graph, context.type_graph.flat
    view = PlainView(graph)
    marks: dict[int, Mark] = {}
    for node in flat.nodes_of("Mul"):
        first, second = flat.inputs_of(node)
        if view.source(first) != view.source(second):
            continue
        for vertex in graph.vertices_of(node):
            reduction = _denied_reduction(context, vertex)
            if reduction is not None and context.list_of(vertex) is ListName.INFER:
                detail = f"a square summed by {graph.node_name(reduction)}"
                marks[vertex] = Mark(Color.DENY, Reason.SQUARE, None, detail)
    return marks


def _small_powers(context: PaintContext) -> list[int]:
    """Return the vertices of Pow that cannot overflow, and that no denied reduction adds up.

    The activation of vocoders, Snake, is x + sin(a x)^2 / a: its square is 1 at most.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    powers: list[int] = []
    for node in flat.nodes_of("Pow"):
        vertices = graph.vertices_of(node)
        if not any(context.list_of(v) is ListName.DENY for v in vertices):
            continue
        result = context.values.intervals[flat.outputs_of(node)[0]]
        if result.magnitude <= _SMALL and all(
            _denied_reduction(context, v) is None for v in vertices
        ):
            powers += vertices
    return powers


def _denied_reduction(context: PaintContext, vertex: int) -> int | None:
    graph = context.type_graph
    reached = walk([vertex], graph.successors, context.on(ListName.CLEAR, ListName.DENY))
    denied = (v for v in reached if context.list_of(v) is ListName.DENY)
    return next((v for v in denied if has(graph.operator_of(v), Trait.SUMS_UP)), None)
