"""P4: an infer operator right behind an allow one joins it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.part import Part, part_of
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason


@dataclass(frozen=True)
class FollowAllow:
    """Paint infer vertices with an allow input and no deny input, in one topological sweep.

    Nodes of gradients are left out: what of them is not between allow operators leads to the
    gradient of a variable, which is float32.
    """

    name: ClassVar[str] = "follow-allow"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the infer vertices that follow allow ones in it."""
        if not context.infer_after_allow:
            return painting
        graph = context.type_graph.graph
        marks: dict[Vertex, Mark] = {}
        for vertex in context.type_graph.vertices():
            if not self._may_follow(context, painting, vertex):
                continue
            inputs = list(graph.predecessors(vertex))
            leader = next((v for v in inputs if v in marks or painting.is_allow(v)), None)
            if leader is not None and not any(painting.is_deny(v) for v in inputs):
                marks[vertex] = Mark(Color.ALLOW, Reason.FOLLOWS, leader)
        return painting.with_marks(marks)

    def _may_follow(self, context: PaintContext, painting: Painting, vertex: Vertex) -> bool:
        return (
            context.list_of(vertex) is ListName.INFER
            and part_of(vertex.node) is not Part.GRADIENT
            and vertex not in painting.marks
            and context.process(vertex)
            and context.supports(vertex)
        )
