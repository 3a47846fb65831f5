"""P6: allow-list operators that the target cannot run in the low type leave the painting."""

from __future__ import annotations

from typing import ClassVar

from onnx import TensorProto

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.elements import element
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason, Reason

QUANTIZED = frozenset(
    number
    for name, number in TensorProto.DataType.items()
    if name.startswith(("FLOAT4", "FLOAT6", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4"))
)
"""Element types that only quantised operators take."""


class DropUnsupported:
    """Unpaint seeded vertices without schema type or kernel, or with a quantised operand."""

    name: ClassVar[str] = "drop-unsupported"
    places: ClassVar[tuple[Place, ...]] = (
        Place(
            Stage.COLORING,
            60,
            (
                "allow vertices whose variable the target cannot run in the low type, or whose "
                "node has a quantised operand, leave the painting"
            ),
            "P6",
        ),
    )
    reasons: ClassVar[tuple[PassReason, ...]] = ()

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without the seeds that the target cannot run."""
        quantized = context.type_graph.where(
            lambda kind: any(element(t) in QUANTIZED for t in kind.known.values())
        )
        runs = context.supported & ~quantized
        marks = {
            v: Mark(Color.NONE, context.unsupported(v) or Reason.QUANTIZED)
            for v in vertices_in(painting.allow & ~runs)
        }
        return painting.with_marks(marks)
