"""P7: a painted region without an accelerated operator costs casts and gains nothing.

Evidence: basic_pitch in bfloat16 for cuda, where no Conv has a kernel: 89 low nodes and 29 casts
without the pass, none with it.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.reach import walk
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason

_SEEDS = (Reason.ALLOW_LIST, Reason.FORCED, Reason.FUSED)


@paints("drop-islands", Place(Stage.COLORING, 80))
def drop_islands(context: PaintContext, painting: Painting) -> Marks:
    """Unpaint connected regions that hold no seed any more."""
    graph = context.type_graph
    handles: dict[int, list[int]] = {}
    for one, other in graph.handles:
        handles.setdefault(one, []).append(other)
        handles.setdefault(other, []).append(one)

    def neighbours(vertex: int) -> list[int]:
        edges = graph.predecessors(vertex) + graph.successors(vertex)
        return edges + handles[vertex] if vertex in handles else edges

    seeds = [v for v, m in painting.marks.items() if m.color is Color.ALLOW and m.reason in _SEEDS]
    kept = walk(seeds, neighbours, painting.allow)
    return {
        v: Mark(Color.NONE, Reason.ISOLATED, painting.marks[v].because)
        for v in vertices_in(painting.allow & ~graph.mask(kept))
    }
