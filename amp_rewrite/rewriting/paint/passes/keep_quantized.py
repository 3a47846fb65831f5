"""Operators that a runtime computes on integers stay as they are.

A Cast between DequantizeLinear and the operator, or between the operator and QuantizeLinear, would
keep the runtime from fusing them: the operator would compute in floating point, which is slower and
rounds a second time. A product with weights of a few bits may become low with their scales
(retarget_dequantizers.py) in float16; ONNX Runtime has no such fusion for bfloat16 scales.

Evidence: DequantizeLinear, Conv, QuantizeLinear: without the pass ONNX Runtime does not fuse the
three into QLinearConv (docs/painting.md, Quantised groups).
"""

from __future__ import annotations

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.dequantizers import may_be_low
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.patterns.quantized import QuantizedGroup, quantized_groups


class KeepQuantized(PaintPass):
    """Mark what stands between quantised tensors; what lies outside is converted."""

    name = "keep-quantized"
    places = (
        Place(
            Stage.GIVEN,
            60,
            "what stands between quantised tensors, before the first round ([below](#groups))",
        ),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the nodes of quantised groups marked."""
        graph = context.type_graph
        marks: dict[int, Mark] = {}
        for group in quantized_groups(graph):
            if group.keeps_operand and context.low is FLOAT16 and may_be_low(context, group.first):
                continue
            mark = Mark(Color.NONE, Reason.QUANTIZED, None, _place(context, group))
            marks |= dict.fromkeys((v for n in group.nodes for v in graph.vertices_of(n)), mark)
        return painting.with_marks(marks)


def _place(context: PaintContext, group: QuantizedGroup) -> str:
    names = context.type_graph.flat.node_names
    if group.last == ABSENT:
        return f"behind {names[group.first]}"
    return f"between {names[group.first]} and {names[group.last]}"
