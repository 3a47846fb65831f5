"""What a runtime has no kernel for in the type that a model came with cannot stay in it.

Nobody asks that of a model that is to be made low: there a missing kernel is a matter of speed or
of casts, and `drop-unsupported` asks the kernel table of the target alone. A file that came in 16
bits may have nodes that no provider runs, and then it does not load.

Evidence: a bfloat16 MatMul in a file for cpu: without the pass `repair` leaves it, and ONNX Runtime
1.32.0 does not load the file.
"""

from __future__ import annotations

from amp_rewrite.graph.dataflow import VertexKind, vertices_in
from amp_rewrite.graph.ports import schema_variable
from amp_rewrite.kernels.runnable import can_run
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


class KeepRunnable(PaintPass):
    """Mark what is low in a painting that was given, and what no kernel runs so."""

    name = "keep-runnable"
    places = (
        Place(
            Stage.HARMED,
            5,
            "of a painting that was given (below), before the first round: what no kernel of "
            "ONNX Runtime takes in its type, so that the file does not load: a bfloat16 MatMul"
            " on a CPU",
        ),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked."""
        if context.given is None or context.target is None:
            return painting
        graph = context.type_graph
        numbers = {int(graph.kind[vertex]) for vertex in vertices_in(context.given)}
        lost = {n for n in numbers if not _runs(context, graph.kinds[n])}
        mark = Mark(Color.NONE, Reason.NO_KERNEL)
        marks = {v: mark for v in vertices_in(context.given) if int(graph.kind[v]) in lost}
        return painting.with_marks(marks)


def _runs(context: PaintContext, kind: VertexKind) -> bool:
    if kind.fixed or kind.schema is None or context.target is None:
        return True
    domain, op, _ = kind.operator
    variables = [(schema_variable(name), kind.known[name]) for name in kind.variables]
    return can_run(context.target, (domain, op, kind.opset), context.low, variables)
