"""P5: operators without numerical effect join the allow operators next to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.paint.reach import walk


@dataclass(frozen=True)
class GrowClear:
    """Paint clear vertices connected to allow ones, along inputs and outputs alike.

    A plain read of a training variable is left out, so that the cast lands behind the read.
    """

    name: ClassVar[str] = "grow-clear"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the clear neighbours of allow vertices in it."""
        graph = context.type_graph.graph

        def neighbours(vertex: Vertex) -> Iterator[Vertex]:
            return chain(graph.predecessors(vertex), graph.successors(vertex))

        def enter(vertex: Vertex) -> bool:
            return (
                context.list_of(vertex) is ListName.CLEAR
                and vertex not in painting.marks
                and context.process(vertex)
                and context.supports(vertex)
                and not context.is_variable_read(vertex)
            )

        roots = [v for v in painting.allowed() if context.process(v)]
        marks = {
            v: Mark(Color.ALLOW, Reason.CLEAR, parent)
            for v, parent in walk(roots, neighbours, enter).items()
            if parent is not None
        }
        return painting.with_marks(marks)
