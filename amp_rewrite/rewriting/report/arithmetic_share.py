"""How much of a model's arithmetic becomes low precision."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.rewriting.paint.painting import Painting


def multiply_accumulates(flat: FlatGraph, node: int) -> float:
    """Estimate the multiply-accumulates of a matrix product or convolution.

    The elements of the output times the length of the sums, where recorded shapes tell; a free
    dimension counts as 1. Without shapes, the elements of the largest constant operand.
    """
    inputs, outputs = flat.inputs_of(node), flat.outputs_of(node)
    shapes = [None if v == ABSENT else flat.shape(v) for v in inputs]
    weight = max((_elements(s) for s in shapes[1:] if s is not None), default=1.0)
    output = flat.shape(outputs[0]) if outputs else None
    if not output:
        return weight
    op_type = flat.called(node).op_type
    if op_type == "Conv" and len(output) > 2:
        return weight * _elements([output[0], *output[2:]])
    # operators: those that sum over the last axis of their first input.
    if op_type in ("MatMul", "Gemm", "FusedMatMul") and inputs[0] != ABSENT:
        return _elements(output) * ((shapes[0] or [None])[-1] or 1)
    return max(weight, _elements(output))


def compute_share(type_graph: TypeGraph, painting: Painting, listed: Collection[int]) -> float:
    """Return the share of the listed nodes' multiply-accumulates that becomes low, from 0 to 1."""
    total = low = 0.0
    for node in listed:
        work = multiply_accumulates(type_graph.flat, node)
        total += work
        if any(painting.is_allow(v) for v in type_graph.vertices_of(node)):
            low += work
    return low / total if total else 0.0


def _elements(shape: Sequence[int | None]) -> float:
    return float(math.prod(1 if d is None else d for d in shape))
