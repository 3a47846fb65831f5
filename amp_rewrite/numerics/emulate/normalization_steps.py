"""A LayerNormalization that is rounded before its scale, as OpenVINO computes it in bfloat16."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.numerics.emulate.folded_weights import constant_of
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

_KEPT = ("axis", "epsilon")


def normalization_steps(node: ir.Node, dtype: DType, nodes: NodeCollector) -> ir.Value | None:
    """Add nodes that compute r((x - mean) / deviation) * scale + bias, and return that, unrounded.

    Returns:
        None where the scale is computed, or the mean is an output as well.
    """
    data, scale, bias = (*node.inputs, None)[:3]
    numbers = constant_of(scale)
    if numbers is None or len(node.outputs) > 1:
        return None
    attributes = [a for a in node.attributes.values() if a.name in _KEPT]
    ones = nodes.array(np.ones_like(numbers))
    normalized = nodes.round(nodes.add("LayerNormalization", [data, ones], attributes), dtype)
    result = nodes.add("Mul", [normalized, scale])
    return result if bias is None else nodes.add("Add", [result, bias])
