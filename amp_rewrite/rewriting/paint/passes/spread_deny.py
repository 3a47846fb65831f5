"""P2: what follows a numerically dangerous operator stays float32 as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.reach import walk
from amp_rewrite.rewriting.paint.squares import find_small_powers, find_squares


@dataclass(frozen=True)
class SpreadDeny:
    """Deny the deny list and every infer vertex that it reaches forward through clear ones.

    A clear vertex on such a path is denied with it; the walk ends with an infer vertex at most and
    never crosses an allow-list or unlisted one, nor what is painted with its group. A power of
    small numbers stays float32, and spreads nothing.
    UNSAFE_FORCE_ALL denies nothing.
    """

    name: ClassVar[str] = "spread-deny"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the denied vertices in it."""
        if context.lists.force_all:
            return painting
        graph = context.type_graph
        roots = {v: m for v, m in find_squares(context).items() if not painting.is_allow(v)}
        small = find_small_powers(context)
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
        return painting.with_marks({**apart, **roots, **marks})
