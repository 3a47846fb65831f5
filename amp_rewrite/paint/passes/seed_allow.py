"""P1: the allow list's operators start the painting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason


@dataclass(frozen=True)
class SeedAllow:
    """Paint every processable vertex of an allow-list operator.

    Under UNSAFE_FORCE_ALL, every processable vertex of a stateless operator that is no constant.
    There is no type or kernel test here; DropUnsupported removes what the target cannot run.
    """

    name: ClassVar[str] = "seed-allow"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the allow list's vertices in it."""
        marks: dict[Vertex, Mark] = {}
        for vertex in context.type_graph.vertices():
            listed = context.list_of(vertex) is ListName.ALLOW
            if not listed and not context.is_forced(vertex):
                continue
            if painting.is_deny(vertex) or not context.process(vertex):
                continue
            entry = context.entry(vertex.node) if listed else None
            if entry is None:
                marks[vertex] = Mark(Color.ALLOW, Reason.FORCED, None, "level UNSAFE_FORCE_ALL")
            else:
                marks[vertex] = Mark(Color.ALLOW, Reason.ALLOW_LIST, None, entry.why)
        return painting.with_marks(marks)
