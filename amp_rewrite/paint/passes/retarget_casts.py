"""K: an existing Cast to float32 is retargeted if all its consumers are low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from amp_rewrite.graph.dataflow import Vertex
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason


@dataclass(frozen=True)
class RetargetCasts:
    """Paint the output variable of such Casts; their input variable is never painted."""

    name: ClassVar[str] = "retarget-casts"

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with the outputs of retargeted Casts in it."""
        marks: dict[Vertex, Mark] = {}
        for node, vertices in context.type_graph.nodes.items():
            if node.op_type != "Cast" or node.domain != "":
                continue
            vertex = vertices.outputs[0]
            if vertex is None or painting.is_allow(vertex):
                continue
            consumer = self._only_allow_consumers(context, painting, node.outputs[0])
            if consumer is not None and context.process(vertex) and context.supports(vertex):
                marks[vertex] = Mark(Color.ALLOW, Reason.RETARGETED, consumer)
        return painting.with_marks(marks)

    def _only_allow_consumers(
        self, context: PaintContext, painting: Painting, value: ir.Value
    ) -> Vertex | None:
        """Return a consumer if there are some and all of them are allow, else None."""
        if value.is_graph_output() or not value.uses():
            return None
        consumers = [context.type_graph.nodes[use.node].inputs[use.idx] for use in value.uses()]
        return consumers[0] if all(painting.is_allow(v) for v in consumers) else None
