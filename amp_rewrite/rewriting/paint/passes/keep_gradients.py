"""Gradients of operators that are float32 stay float32, as the operators do.

What such an operator reads is out of the range of the low type or too delicate for it, and its
gradient reads the same. PyTorch's autocast runs backward in the type of forward, too.

Evidence: training steps: without the pass the gradient of a float32 operator is float16
(tests/training/test_mixed_training.py).
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.step_part import source_in
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


class KeepGradients(PaintPass):
    """Unpaint the infer vertices of the gradients of denied and excluded operators."""

    name = "keep-gradients"
    places = (
        Place(
            Stage.KEEPING,
            110,
            "gradients of operators that are float32 themselves ([below](#training-steps))",
        ),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices."""
        graph, flat = context.type_graph, context.type_graph.flat
        sources = {v: source_in(flat.metadata_of(graph.nodes[v])) for v in painting.allowed()}
        if not any(sources.values()):
            return painting
        kept = painting.deny | graph.mask(context.excluded)
        refused = {
            flat.source_key(node): node
            for node in sorted({graph.nodes[v] for v in vertices_in(kept)})
            if source_in(flat.metadata_of(node)) is None
        }
        marks: dict[int, Mark] = {}
        for vertex, source in sources.items():
            node = refused.get(source or "")
            if node is not None and context.list_of(vertex) is ListName.INFER:
                detail = f"the gradient of {flat.node_names[node]}, which is float32"
                marks[vertex] = Mark(Color.NONE, Reason.FLOAT32_PART, None, detail)
        return painting.with_marks(marks)
