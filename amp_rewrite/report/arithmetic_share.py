"""How much of a model's arithmetic becomes low precision."""

from __future__ import annotations

import math

import onnx_ir as ir

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.paint.painting import Painting


def multiply_accumulates(node: ir.Node) -> float:
    """Estimate the multiply-accumulates of a matrix product or convolution.

    The elements of the output times the length of the sums, where recorded shapes tell; a free
    dimension counts as 1. Without shapes, the elements of the largest constant operand.
    """
    weights = [_elements(v.shape) for v in node.inputs[1:] if v is not None and v.shape is not None]
    weight = max(weights, default=1.0)
    output = node.outputs[0].shape if node.outputs else None
    if output is None or len(output) == 0:
        return weight
    if node.op_type == "Conv" and len(output) > 2:
        return weight * _elements(ir.Shape([output[0], *output[2:]]))
    # operators: those that sum over the last axis of their first input.
    if node.op_type in ("MatMul", "Gemm", "FusedMatMul") and node.inputs[0] is not None:
        inner = node.inputs[0].shape
        last = inner[-1] if inner is not None and len(inner) else None
        return _elements(output) * (last if isinstance(last, int) else 1)
    return max(weight, _elements(output))


def compute_share(type_graph: TypeGraph, painting: Painting, listed: frozenset[ir.Node]) -> float:
    """Return the share of the listed nodes' multiply-accumulates that becomes low, from 0 to 1."""
    total = low = 0.0
    for node in listed:
        work = multiply_accumulates(node)
        total += work
        if any(painting.is_allow(v) for v in type_graph.nodes[node].all):
            low += work
    return low / total if total else 0.0


def _elements(shape: object) -> float:
    dims = [d if isinstance(d, int) else 1 for d in shape]  # pyright: ignore[reportGeneralTypeIssues]
    return float(math.prod(dims))
