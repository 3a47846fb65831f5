"""What operators do to a value's elements: keep them, divide by them, add them up."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.numerics.ranges.probe import Prober

_REARRANGES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_PASSES_ON = _REARRANGES | {"Abs", "Concat", "Expand", "Gather", "Neg", "Slice", "Split", "Sqrt"}
"""Operators whose result is close to zero, or zero, where an input is."""

_SENSITIVE = {"Div": 1, "Log": 0, "Reciprocal": 0}
"""Operator -> the input where zero in the place of a small number gives an infinity."""

ACCUMULATING = (
    "CumSum",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceMean",
    "ReduceSum",
    "ReduceSumSquare",
)
"""Reductions; calibrate bounds their partial sums on every target."""

_SUM_OF = {
    "ReduceL1": "ReduceL1",
    "ReduceL2": "ReduceSumSquare",
    "ReduceLogSum": "ReduceSum",
    "ReduceMean": "ReduceL1",
    "ReduceSum": "ReduceSum",
    "ReduceSumSquare": "ReduceSumSquare",
}
"""Reduction -> the operator that bounds every partial sum; ReduceSum does so on magnitudes."""

PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
"""Sums of products; calibrate bounds them on targets that keep partial sums in the low type."""

_ON_MAGNITUDES = frozenset({"CumSum", *PRODUCTS})
"""Operators whose own result on the magnitudes of their inputs bounds every partial sum."""


def same_elements(value: ir.Value) -> ir.Value:
    """Return the earliest value that holds the same elements in another arrangement."""
    node = value.producer()
    while node is not None and node.op_type in _REARRANGES and node.domain == "":
        source = node.inputs[0]
        if source is None:
            break
        value = source
        node = value.producer()
    return value


def sensitive_values(type_graph: TypeGraph) -> frozenset[ir.Value]:
    """Return the values whose small elements must not become zero: divisors and logarithms."""
    stack = [
        value
        for node in type_graph.nodes
        if node.domain == "" and node.op_type in _SENSITIVE
        for value in [node.inputs[_SENSITIVE[node.op_type]]]
        if value is not None
    ]
    found: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value in found or not type_graph.is_float32(value):
            continue
        found.add(value)
        node = value.producer()
        if node is not None and node.domain == "" and node.op_type in _PASSES_ON:
            stack += [v for v in node.inputs if v is not None]
    return frozenset(found)


def partial_sum(prober: Prober, node: ir.Node) -> ir.Value | None:
    """Add what bounds the partial sums of a reduction; None if the operator is not known.

    sum |x_i| is at least the magnitude of every partial sum, in whatever order a kernel adds.
    """
    graph, first = node.graph, node.inputs[0]
    if not isinstance(graph, ir.Graph) or first is None or node.domain != "":
        return None
    attributes = list(node.attributes.values())
    if node.op_type in _SUM_OF:
        op, inputs = _SUM_OF[node.op_type], list(node.inputs)
        if op == "ReduceSum":
            inputs[0] = prober.add(graph, "Abs", [first])
        return prober.add(graph, op, inputs, attributes)
    if node.op_type not in _ON_MAGNITUDES:
        return None
    n_terms = 1 if node.op_type == "CumSum" else len(node.inputs)
    inputs = [
        prober.add(graph, "Abs", [v]) if v is not None and i < n_terms else v
        for i, v in enumerate(node.inputs)
    ]
    return prober.add(graph, node.op_type, inputs, attributes)
