"""P6: allow-list operators that the target cannot run in the 16-bit type leave the painting.

Evidence: silero_v6 in bfloat16 for cuda, whose opset has no bfloat16 Conv: 153 low nodes and 22
casts without the pass, none with it.
"""

from __future__ import annotations

from onnx import TensorProto

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.elements import element
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason

QUANTIZED = frozenset(
    number
    for name, number in TensorProto.DataType.items()
    if name.startswith(("FLOAT4", "FLOAT6", "FLOAT8", "INT2", "INT4", "UINT2", "UINT4"))
)
"""Element types that only quantised operators take."""


@paints("drop-unsupported", Place(Stage.COLORING, 60))
def drop_unsupported(context: PaintContext, painting: Painting) -> Marks:
    """Unpaint seeded vertices without schema type or kernel, or with a quantised operand."""
    quantized = context.type_graph.where(
        lambda kind: any(element(t) in QUANTIZED for t in kind.known.values())
    )
    runs = context.supported & ~quantized
    return {
        v: Mark(Color.NONE, context.unsupported(v) or Reason.QUANTIZED)
        for v in vertices_in(painting.allow & ~runs)
    }
