"""P1: the allow list's operators start the painting.

Evidence: every model: nothing is painted without the pass.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("seed-allow", Place(Stage.SEEDING, 20))
def seed_allow(context: PaintContext, painting: Painting) -> Marks:
    """Paint every processable vertex of an allow-list operator, and what joins its group."""
    listed = context.on(ListName.ALLOW)
    seeds = (listed | context.forced) & context.processable & ~painting.deny
    why = "level UNSAFE_FORCE_ALL" if context.lists.is_unsafe else "nothing may be float32"
    forced = Mark(Color.ALLOW, Reason.FORCED, None, why)
    marks = dict.fromkeys(vertices_in(seeds & ~listed), forced)
    joined = {v: m for v, m in context.joined.items() if context.processable[v]}
    marks |= joined | context.marks_of_entries(
        vertices_in(seeds & listed), Color.ALLOW, Reason.ALLOW_LIST
    )
    return dict(sorted(marks.items()))
