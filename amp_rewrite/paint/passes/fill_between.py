"""P3: what lies between two allow operators joins them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.paint.reach import walk


@dataclass(frozen=True)
class FillBetween:
    """Paint every vertex on a path allow -> (clear | infer)* -> allow."""

    name: ClassVar[str] = "fill-between"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the vertices between allow-list operators in it."""
        graph = context.type_graph.graph
        roots = [v for v in painting.allowed() if self._is_root(context, v)]

        def enter(vertex: Vertex) -> bool:
            return (
                context.list_of(vertex) in (ListName.CLEAR, ListName.INFER)
                and not painting.is_deny(vertex)
                and context.process(vertex)
                and context.supports(vertex)
            )

        down = walk(roots, graph.successors, enter)
        between = walk(roots, graph.predecessors, down.__contains__)
        marks = {
            v: Mark(Color.ALLOW, Reason.BETWEEN, down[v] or parent)
            for v, parent in between.items()
            if parent is not None and not painting.is_allow(v)
        }
        return painting.with_marks(marks)

    def _is_root(self, context: PaintContext, vertex: Vertex) -> bool:
        listed = context.list_of(vertex) is ListName.ALLOW
        return (listed or context.is_forced(vertex)) and context.process(vertex)
