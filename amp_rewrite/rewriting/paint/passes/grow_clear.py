"""P5: operators without numerical effect join the allow operators next to them.

So does an infer operator that makes or reads what was multiplied by a power of two, for that fits:
the first norm of a stream that begins at an embedding.

Evidence: minilm_l3 in float16: 24 casts without the pass, 12 with it.
"""

from __future__ import annotations

from amp_rewrite.graph.reach import walk
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("grow-clear", Place(Stage.COLORING, 50))
def grow_clear(context: PaintContext, painting: Painting) -> Marks:
    """Paint clear vertices connected to allow ones, along both inputs and outputs."""
    graph, may_touch = context.type_graph, context.processable

    def neighbours(vertex: int) -> list[int]:
        return graph.predecessors(vertex) + graph.successors(vertex)

    scaled = context.on(ListName.INFER) & context.scaled
    grows = (context.on(ListName.CLEAR) | scaled) & may_touch & context.supported
    enter = grows & ~painting.marked & ~context.variable_reads
    roots = [v for v in painting.allowed() if may_touch[v]]
    return {
        v: Mark(
            Color.ALLOW,
            Reason.SCALED_NEXT_TO_ALLOW if scaled[v] else Reason.CLEAR_NEXT_TO_ALLOW,
            parent,
        )
        for v, parent in walk(roots, neighbours, enter).items()
        if parent is not None
    }
