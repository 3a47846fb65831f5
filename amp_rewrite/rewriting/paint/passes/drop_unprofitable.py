"""Unpaint regions whose casts move more bytes than everything low in them saves."""

from __future__ import annotations

from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason, Reason
from amp_rewrite.rewriting.paint.region_costs import Region, RegionCosts, total

UNPROFITABLE = PassReason(
    "unprofitable",
    phrase="the casts around its region cost more than it saves",
    plain="costs more in casts than it saves",
    row="the casts around its region cost more than it saves (after the fixed point)",
)

CLEAR_LOSS = 2.0
"""How many times what a region saves its casts have to cost."""


class DropUnprofitable(PaintPass):
    """Unpaint regions that clearly cost more than they save.

    All shapes concerned have to be recorded, and the target has to say how its units compare with
    its memory. A region with a vertex that the user allows by name, or that is forced, stays, and
    so do those around a group with a low tail.
    """

    name = "drop-unprofitable"
    places = (
        Place(Stage.SAVING, 20, "unpaints regions whose casts cost more than twice what they save"),
    )
    reasons = (UNPROFITABLE,)

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such regions."""
        if context.bytes_per_mac is None or not painting.allow.any():
            return painting
        costs = RegionCosts(context, painting.allow, Sizes(context.type_graph.flat))
        marks: dict[int, Mark] = {}
        low_tails = (f for f in context.groups if any(painting.is_allow(v) for v in f.tail))
        bound = {v for fused in low_tails for v in fused.surroundings}
        for region in costs.regions:
            moved = total(costs.cast_bytes(value) for value in region.casts)
            if not moved or _is_wanted(context, painting, region) or bound & set(region.vertices):
                continue
            saved = _saved(costs, region, context.bytes_per_mac, enough=moved / CLEAR_LOSS)
            if saved is not None and moved > CLEAR_LOSS * saved:
                detail = f"its casts move {moved:,} bytes a run, it saves {saved:,.0f}"
                mark = Mark(Color.NONE, UNPROFITABLE, None, detail)
                marks |= dict.fromkeys(region.vertices, mark)
        return painting.with_marks(marks)


def _saved(costs: RegionCosts, region: Region, bytes_per_mac: float, enough: float) -> float | None:
    """Return what a region saves, in bytes, once it is known or enough; None if it is not known."""
    saved = 0.0
    for vertex in region.vertices:
        narrowed, faster = costs.saved_bytes(vertex), costs.multiply_accumulates(vertex)
        if narrowed is None or faster is None:
            return None
        saved += narrowed + bytes_per_mac * faster
        if saved >= enough:
            break
    return saved


def _is_wanted(context: PaintContext, painting: Painting, region: Region) -> bool:
    """Tell whether the user asked for a vertex of a region."""
    return any(
        painting.marks[v].reason is Reason.FORCED or context.is_allowed(v) for v in region.vertices
    )
