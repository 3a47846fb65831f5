"""P4: an infer operator right behind an allow one joins it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.part import Part, part_in
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
        graph = context.type_graph
        candidates = context.on(ListName.INFER) & context.processable & context.supported
        marks: dict[int, Mark] = {}
        for vertex in vertices_in(candidates & ~painting.marked):
            inputs = graph.predecessors(vertex)
            leader = next((v for v in inputs if v in marks or painting.is_allow(v)), None)
            if leader is None or any(painting.is_deny(v) for v in inputs):
                continue
            if part_in(graph.flat.metadata_of(graph.nodes[vertex])) is not Part.GRADIENT:
                marks[vertex] = Mark(Color.ALLOW, Reason.FOLLOWS, leader)
        return painting.with_marks(marks)
