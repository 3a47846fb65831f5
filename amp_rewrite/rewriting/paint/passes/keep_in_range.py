"""What leaves the range of the low type, for certain or by an estimate, stays float32.

Both ends of such a value do: whoever computes it would round it to infinity, and whoever reads it
would get an infinity from the cast. Where kernels add in the low type, a product whose partial sums
leave it does, too, however small its results are. A comparison and a bound of Clip do not mind,
neither does an attention whose mask ends where the low type does, and neither does an activation
that the target computes as one operator: the cube inside Gelu ends in a Tanh.

Evidence: light_bvlc_alexnet in float16: all 1,000 outputs are infinite or NaN without the pass,
none with it.
"""

from __future__ import annotations

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has, row_of
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import low_readers
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


class KeepInRange(PaintPass):
    """Unpaint what computes or reads a value beyond the range of the low type."""

    name = "keep-in-range"
    places = (
        Place(
            Stage.KEEPING,
            40,
            "what computes or reads numbers that leave the range, for certain or by an estimate",
        ),
        Place(Stage.JUDGING, 20),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; a mark names the value and what it reaches."""
        vertices_of = context.type_graph.vertices_of
        hidden = {value for fused in context.groups if not fused.tail for value in fused.inner}
        sums = {**context.values.beyond_sums(context.adds_low), **context.values.beyond_inside}
        ends = [
            *(
                (b, _ends(context, painting, v))
                for v, b in context.values.beyond.items()
                if v not in hidden
            ),
            *((beyond, vertices_of(node)) for node, beyond in sums.items()),
        ]
        marks: dict[int, Mark] = {}
        for beyond, vertices in ends:
            mark = Mark(Color.NONE, beyond.reason, None, beyond.detail)
            for vertex in vertices:
                if painting.is_allow(vertex) and not _is_overruled(context, vertex, beyond.reason):
                    marks.setdefault(vertex, mark)
        return painting.with_marks(marks)


def _is_overruled(context: PaintContext, vertex: int, reason: Reason) -> bool:
    """Tell whether the user, or data, know better than an estimate; no fact is overruled."""
    if reason is Reason.LIKELY_OVERFLOW and not context.estimates_count:
        return True
    return reason is not Reason.CERTAIN_OVERFLOW and context.is_allowed(vertex)


def _ends(context: PaintContext, painting: Painting, value: int) -> list[int]:
    """Return the vertices that compute or read a value and mind if it is infinite."""
    graph, flat = context.type_graph, context.type_graph.flat
    ends, limit = [graph.source[value]], context.values.masks.limit
    for slot in flat.uses(value):
        called = flat.called(flat.reader(slot))
        is_bound = called[:2] == ("", "Clip") and flat.index(slot) > 0
        is_mask = flat.index(slot) in row_of(called).masks and bool(
            limit(value, low_readers(graph, painting, value))
        )
        if not (is_bound or is_mask or has(called, Trait.COMPARES)):
            ends.append(graph.reads[slot])
    return [vertex for vertex in ends if vertex != ABSENT]
