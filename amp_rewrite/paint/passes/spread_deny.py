"""P2: what follows a numerically dangerous operator stays float32 as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.paint.reach import walk
from amp_rewrite.paint.squares import find_squares


@dataclass(frozen=True)
class SpreadDeny:
    """Deny the deny list and every infer vertex that it reaches forward through clear ones.

    A clear vertex on such a path is denied with it; the walk ends with an infer vertex at most and
    never crosses an allow-list or unlisted one. UNSAFE_FORCE_ALL denies nothing.
    """

    name: ClassVar[str] = "spread-deny"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the denied vertices in it."""
        if context.lists.force_all:
            return painting
        graph = context.type_graph.graph
        roots, infer = self._roots(context)
        upstream = walk(
            [*roots, *infer],
            graph.predecessors,
            lambda v: context.list_of(v) is ListName.CLEAR,
        )
        reached = walk(roots, graph.successors, lambda v: v in upstream and not painting.is_deny(v))
        marks = {
            v: Mark(Color.DENY, Reason.DOWNSTREAM_OF_DENY, parent)
            for v, parent in reached.items()
            if parent is not None
        }
        return painting.with_marks(roots | marks)

    def _roots(self, context: PaintContext) -> tuple[dict[Vertex, Mark], list[Vertex]]:
        """Return the deny roots with their marks, and the infer roots."""
        roots = find_squares(context)
        infer: list[Vertex] = []
        for vertex in context.type_graph.vertices():
            name = context.list_of(vertex)
            if name is ListName.DENY:
                entry = context.entry(vertex.node)
                why = None if entry is None else entry.why
                roots[vertex] = Mark(Color.DENY, Reason.DENY_LIST, None, why)
            elif name is ListName.INFER and vertex not in roots:
                infer.append(vertex)
        return roots, infer
