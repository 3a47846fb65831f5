"""P1: the allow list's operators start the painting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
        marks: dict[object, Mark] = {}
        for vertex in context.type_graph.vertices():
            entry = context.entry(vertex.node)
            listed = entry is not None and entry.list is ListName.ALLOW
            if not listed and not context.is_forced(vertex):
                continue
            if painting.is_deny(vertex) or not context.process(vertex):
                continue
            reason = Reason.ALLOW_LIST if listed else Reason.FORCED
            detail = entry.why if listed and entry else "level UNSAFE_FORCE_ALL"
            marks[vertex] = Mark(Color.ALLOW, reason, None, detail)
        return painting.with_marks(marks)
