"""A factor in front of a low matrix product is low, too: the target takes it into the product.

Evidence: a query times 0.5 in front of its product, float16 on CUDA: ONNX Runtime makes one
FusedMatMul of the two with the pass, a Mul and a product without it
(tests/tools/test_cuda_stub.py).
"""

from __future__ import annotations

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("join-scales", Place(Stage.KEEPING, 20))
def join_scales(context: PaintContext, painting: Painting) -> Marks:
    """Make the factors of low matrix products low, where the target computes both as one operator.

    Exporters scale queries and keys before they multiply them. Where these are float32, the Cast to
    the product comes in front of the factor, not behind it.
    """
    may_be = context.processable & context.supported & ~painting.allow
    marks: dict[int, Mark] = {}
    for scaled in context.scaled_operands:
        if may_be[scaled.scale] and painting.is_allow(scaled.product):
            marks[scaled.scale] = Mark(Color.ALLOW, Reason.FUSED, None, scaled.words)
    return marks
