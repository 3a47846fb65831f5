"""Gemm as MatMul, for an engine that multiplies what Gemm scales by 1, too.

OpenVINO 2026.4 reads alpha = 1 as a Multiply, which it leaves out in float32 alone. In bfloat16 it
writes one more copy of an operand in front of every product, of the activations of 1024 tokens say:
of a small BERT's step 3 %.
"""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.replace import take_place


def spell_out_gemms(model: ir.Model) -> None:
    """Replace Gemm that neither scale nor lack an operand, in place; types and shapes are known."""
    b = Builder(model, scope="products", part=Part.GRADIENT)
    for node in list(model.graph):
        inputs = node.inputs
        if node.op_type != "Gemm" or node.domain or inputs[0] is None or inputs[1] is None:
            continue
        if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
            continue
        before = len(b.added)
        x, y = (
            b.transpose(value, [1, 0]) if node.attributes.get_int(name, 0) else value
            for value, name in ((inputs[0], "transA"), (inputs[1], "transB"))
        )
        product = b.matmul(x, y)
        product = (
            b.add(product, inputs[2]) if len(inputs) > 2 and inputs[2] is not None else product
        )
        for added in b.added[before:]:
            added.metadata_props.clear()
            added.metadata_props.update(node.metadata_props)
        take_place(product, node.outputs[0])
        model.graph.remove(node, safe=True)
    if b.added:
        model.graph.sort()
