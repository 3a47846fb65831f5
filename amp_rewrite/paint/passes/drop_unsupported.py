"""P6: allow-list operators that the target cannot run in the low type leave the painting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.graph.elements import element
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

QUANTIZED = frozenset(
    m
    for m in ir.DataType
    if m.name.startswith(("FLOAT4", "FLOAT6", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4"))
)
"""Element types that only quantised operators take."""


@dataclass(frozen=True)
class DropUnsupported:
    """Unpaint seeded vertices without schema type or kernel, or with a quantised operand."""

    name: ClassVar[str] = "drop-unsupported"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without the seeds that the target cannot run."""
        marks: dict[Vertex, Mark] = {}
        for vertex, mark in painting.marks.items():
            if mark.color is not Color.ALLOW:
                continue
            reason = context.unsupported(vertex)
            if reason is None and any(element(t) in QUANTIZED for t in vertex.kind.known.values()):
                reason = Reason.QUANTIZED
            if reason is not None:
                marks[vertex] = Mark(Color.NONE, reason)
        return painting.with_marks(marks)
