"""A BatchNormalization that ONNX Runtime would fuse into a product of another type stays float32.

ONNX Runtime 1.32.0 multiplies the weights of a MatMul by the scale of a BatchNormalization behind
it, at once or behind Reshape and Transpose, without a look at their types. With float16 weights and
float32 statistics it ends in "Tensor type mismatch" and does not load the model. A Cast between the
two keeps it from that.

Evidence: MatMul and BatchNormalization in float16 for tensorrt: without the pass ONNX Runtime
1.32.0 does not load the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.batch_norms import product_before
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import GivenNote, given_notes
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


class KeepBatchNorms(PaintPass):
    """Unpaint such nodes where their scale and statistics are not low with them."""

    name = "keep-batch-norms"
    places = (
        Place(
            Stage.KEEPING,
            130,
            "a BatchNormalization with float32 statistics behind a low MatMul, which ONNX "
            "Runtime fuses into it whatever their types "
            "([other_tools.md](other_tools.md#files-that-end-onnx-runtime))",
        ),
        Place(Stage.JUDGING, 100),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without them; the same if ONNX Runtime does not load the result."""
        if context.target is None or not context.target.meets_onnx_runtime:
            return painting
        graph = context.type_graph
        flat, marks = graph.flat, dict[int, Mark]()
        notes = {} if context.given is None else given_notes(flat)
        for node in flat.nodes_of("BatchNormalization"):
            reads = graph.reads[flat.input_start[node] : flat.input_start[node + 1]]
            mixed = [v != ABSENT and painting.is_allow(v) for v in reads]
            if not mixed[0] or (all(mixed) and not _was_mixed(graph, reads, notes.get(node))):
                continue
            product = product_before(flat, node, through_casts=True)
            if product != ABSENT and _is_low(context, painting, product):
                origin = graph.source[flat.outputs_of(product)[0]]
                because = None if origin == ABSENT else origin
                marks[reads[0]] = Mark(
                    Color.NONE, Reason.RUNTIME_FUSION, because, flat.node_names[product]
                )
        return painting.with_marks(marks)


def _was_mixed(graph: TypeGraph, reads: Sequence[int], note: GivenNote | None) -> bool:
    """Tell whether a node had two types in the model that its float32 form stands for."""
    if note is None:
        return False
    return any(not note.variables.issuperset(graph.kind_of(v).variables) for v in reads)


def _is_low(context: PaintContext, painting: Painting, product: int) -> bool:
    """Tell whether a MatMul gives the low type, or came so."""
    value = context.type_graph.flat.outputs_of(product)[0]
    vertex = context.type_graph.source[value]
    if vertex != ABSENT:
        return painting.is_allow(vertex)
    return context.type_graph.types[value] == tensor(context.low.number)
