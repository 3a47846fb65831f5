"""A product with weights of a few bits is low together with them, or not at all.

Evidence: a MatMul with int4 weights that something else reads as float32
(tests/conformance/test_weight_only_quantization.py): without the pass ONNX Runtime does not fuse
the two.
"""

from __future__ import annotations

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.patterns.quantized import quantized_groups


class KeepDequantized(PaintPass):
    """Unpaint products that a runtime fuses with weights of a few bits, where these are float32."""

    name = "keep-dequantized"
    places = (
        Place(
            Stage.KEEPING,
            140,
            "products with weights of a few bits that something else reads as float32",
        ),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such products."""
        graph = context.type_graph
        marks: dict[int, Mark] = {}
        for group in quantized_groups(graph):
            if any(painting.is_allow(v) for v in graph.vertices_of(group.first)):
                continue
            detail = (
                f"behind {graph.flat.node_names[group.first]}, which something reads as float32"
            )
            mark = Mark(Color.NONE, Reason.QUANTIZED, None, detail)
            vertices = [v for n in group.nodes for v in graph.vertices_of(n)]
            marks |= {v: mark for v in vertices if painting.is_allow(v)}
        return painting.with_marks(marks)
