"""Gradients of operators that are float32 stay float32, as the operators do.

What such an operator reads is out of the range of the low type or too delicate for it, and its
gradient reads the same. PyTorch's autocast runs backward in the type of forward, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amp_rewrite.graph.part import source_key, source_of
from amp_rewrite.oplists import ListName
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason


@dataclass(frozen=True)
class KeepGradients:
    """Unpaint the infer vertices of the gradients of denied and excluded operators."""

    name: ClassVar[str] = "keep-gradients"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices."""
        refused = {
            source_key(v.node): v
            for v in context.type_graph.vertices()
            if source_of(v.node) is None and (painting.is_deny(v) or v in context.excluded)
        }
        marks = {}
        for vertex in painting.allowed():
            source = refused.get(source_of(vertex.node) or "")
            if source is not None and context.list_of(vertex) is ListName.INFER:
                detail = f"the gradient of {source.node.name}, which is float32"
                marks[vertex] = Mark(Color.NONE, Reason.FLOAT32_PART, None, detail)
        return painting.with_marks(marks)
