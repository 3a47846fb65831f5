"""P5: operators without numerical effect join the allow operators next to them."""

from __future__ import annotations

from typing import ClassVar

from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.reach import walk


class GrowClear:
    """Paint clear vertices connected to allow ones, along inputs and outputs alike.

    A plain read of a training variable is left out, so that the cast lands behind the read.
    """

    name: ClassVar[str] = "grow-clear"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the clear neighbours of allow vertices in it."""
        graph, may_touch = context.type_graph, context.processable

        def neighbours(vertex: int) -> list[int]:
            return graph.predecessors(vertex) + graph.successors(vertex)

        grows = context.on(ListName.CLEAR) & may_touch & context.supported
        enter = grows & ~painting.marked & ~context.variable_reads
        roots = [v for v in painting.allowed() if may_touch[v]]
        marks = {
            v: Mark(Color.ALLOW, Reason.CLEAR, parent)
            for v, parent in walk(roots, neighbours, enter).items()
            if parent is not None
        }
        return painting.with_marks(marks)
