"""A BatchNormalization that ONNX Runtime would fuse into a product of another type stays float32.

ONNX Runtime 1.32.0 multiplies the weights of a MatMul by the scale of a BatchNormalization behind
it, at once or behind Reshape and Transpose, without a look at their types. With float16 weights and
float32 statistics it ends in "Tensor type mismatch" and does not load the model. A Cast between the
two keeps it from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import GivenNote, given_notes
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

# operators: what the runtime looks through between the two.
_LOOKED_THROUGH = frozenset({"Reshape", "Transpose", "Identity"})


class KeepBatchNorms:
    """Unpaint such nodes where their scale and statistics are not low with them."""

    name: ClassVar[str] = "keep-batch-norms"

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
            product = _product(graph, flat.inputs_of(node)[0])
            if product != ABSENT and painting.is_allow(product):
                detail = f"ONNX Runtime would fuse it into {graph.node_name(product)}"
                marks[reads[0]] = Mark(Color.NONE, Reason.RUNTIME_FUSION, product, detail)
        return painting.with_marks(marks)


def _was_mixed(graph: TypeGraph, reads: Sequence[int], note: GivenNote | None) -> bool:
    """Tell whether a node had two types in the model that its float32 form stands for."""
    if note is None:
        return False
    return any(not note.variables.issuperset(graph.kind_of(v).variables) for v in reads)


def _product(graph: TypeGraph, value: int) -> int:
    """Return the vertex of the MatMul that makes a value, moved or not; ABSENT if none does."""
    flat = graph.flat
    while value != ABSENT and (node := flat.producer[value]) != ABSENT:
        called = flat.called(node)
        if called[:2] == ("", "MatMul"):
            return graph.source[value]
        if called.domain or called.op_type not in _LOOKED_THROUGH:
            break
        value = flat.inputs_of(node)[0]
    return ABSENT
