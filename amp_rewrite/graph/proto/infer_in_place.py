"""onnx's inference of types and shapes over a model of onnx_ir, in place."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from amp_rewrite.graph.proto.shape_inference import ENDS_INFERENCE, HIDDEN
from amp_rewrite.graph.traverse import graphs_in


def infer_in_place(model: ir.Model, *, follow: bool = True) -> None:
    """Infer types and shapes in place; `follow` follows small data, such as shapes, through nodes.

    Initializers keep their order: the pass of onnx_ir 1.1.0 puts those above 1,000 bytes last. An
    operator that would end inference has another name meanwhile.
    """
    initializers = model.graph.initializers
    order = list(initializers)
    infer = ShapeInferencePass(check_type=False, strict_mode=False, data_prop=follow)
    nodes = (node for graph in graphs_in(model.graph) for node in graph)
    ending = [node for node in nodes if node.op_type == ENDS_INFERENCE and not node.domain]
    for node in ending:
        node.op_type = HIDDEN
    infer(model)
    for node in ending:
        node.op_type = ENDS_INFERENCE
    if ending and all(v is not None and v.type is not None for n in ending for v in n.inputs):
        infer(model)
    for name in order:
        initializers[name] = initializers.pop(name)
