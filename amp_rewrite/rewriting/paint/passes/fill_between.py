"""P3: what lies between two allow operators joins them.

Evidence: light_densenet121 in float16: 120 casts without the pass, 2 with it.
"""

from __future__ import annotations

from amp_rewrite.graph.reach import walk
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("fill-between", Place(Stage.COLORING, 30))
def fill_between(context: PaintContext, painting: Painting) -> Marks:
    """Paint every vertex on a path allow -> (clear | infer)* -> allow."""
    graph = context.type_graph
    may_touch = context.processable
    is_root = may_touch & context.seeds
    roots = [v for v in painting.allowed() if is_root[v]]
    passable = context.on(ListName.CLEAR, ListName.INFER) & may_touch & context.supported
    down = walk(roots, graph.successors, passable & ~painting.deny)
    between = walk(roots, graph.predecessors, graph.mask(down))
    return {
        v: Mark(Color.ALLOW, Reason.BETWEEN_ALLOW, down[v] if down[v] is not None else parent)
        for v, parent in between.items()
        if parent is not None and not painting.is_allow(v)
    }
