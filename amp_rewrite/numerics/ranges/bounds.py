"""Which values share elements, which must not become zero, and what bounds partial sums."""

from __future__ import annotations

import math

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has, having, row_of
from amp_rewrite.numerics.ranges.probe import Prober

ACCUMULATING = tuple(sorted(having(Trait.SUMS_UP)))
"""Reductions; calibrate bounds their partial sums on every target."""

# operators: the reductions, and what bounds every partial sum of each.
_SUM_OF = {
    "ReduceL1": "ReduceL1",
    "ReduceL2": "ReduceSumSquare",
    "ReduceLogSum": "ReduceSum",
    "ReduceMean": "ReduceL1",
    "ReduceSum": "ReduceSum",
    "ReduceSumSquare": "ReduceSumSquare",
}
"""Reduction -> the operator that bounds every partial sum; ReduceSum does so on magnitudes."""

PRODUCTS = tuple(sorted(having(Trait.CONTRACTS)))
"""Sums of products; calibrate bounds them on targets that keep partial sums in the low type."""

POOLS = tuple(sorted(having(Trait.AVERAGES)))
"""Means over windows, bounded on such targets as well: the sum comes before the division."""

_AFTER_THE_SUM = frozenset({"alpha", "beta"})
"""Attributes of Gemm that scale a finished sum."""

_PASSING_ON = (Trait.MOVES, Trait.CHANGES_SIGN, Trait.STEEP_AT_ZERO)
"""Traits of operators whose result is zero where an input is."""

_ON_MAGNITUDES = frozenset({"CumSum", *PRODUCTS})
"""Operators whose own result on the magnitudes of their inputs bounds every partial sum."""


def same_elements(value: ir.Value) -> ir.Value:
    """Return the earliest value that holds the same elements in another arrangement."""
    node = value.producer()
    while node is not None and has(node, Trait.REARRANGES):
        source = node.inputs[0]
        if source is None:
            break
        value = source
        node = value.producer()
    return value


def sensitive_values(type_graph: TypeGraph) -> frozenset[int]:
    """Return the values whose small elements must not become zero: divisors and logarithms."""
    flat = type_graph.flat
    poles = [row_of(called).pole for called in flat.operators]
    stack = [
        value
        for node, called in enumerate(flat.operator)
        for index, value in enumerate(flat.inputs_of(node))
        if value != ABSENT and index == poles[called]
    ]
    sensitive: set[int] = set()
    while stack:
        value = stack.pop()
        if value in sensitive or not type_graph.is_float32(value):
            continue
        sensitive.add(value)
        node = flat.producer[value]
        if node != ABSENT and has(flat.called(node), *_PASSING_ON):
            stack += [v for v in flat.inputs_of(node) if v != ABSENT]
    return frozenset(sensitive)


def partial_sum(prober: Prober, node: ir.Node) -> ir.Value | None:
    """Add what bounds the partial sums of a node; None if the operator is not known.

    sum |x_i| is at least the magnitude of every partial sum, in whatever order a kernel adds.
    """
    graph, first = node.graph, node.inputs[0]
    if not isinstance(graph, ir.Graph) or first is None or node.domain != "":
        return None
    attributes = [a for a in node.attributes.values() if a.name not in _AFTER_THE_SUM]
    if node.op_type in POOLS:
        return _pool_magnitudes(prober, graph, node, first)
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


def _pool_magnitudes(prober: Prober, graph: ir.Graph, node: ir.Node, data: ir.Value) -> ir.Value:
    """Return the mean of the magnitudes in each window times the number of elements in one."""
    magnitudes = prober.add(graph, "Abs", [data])
    mean = prober.add(graph, node.op_type, [magnitudes], list(node.attributes.values()))
    if "kernel_shape" in node.attributes:
        window = math.prod(node.attributes["kernel_shape"].as_ints())
        return prober.add(graph, "Mul", [mean, prober.constant(float(window))])
    to = [ir.AttrInt64("to", FLOAT32.ir.value)]
    sizes = [prober.add(graph, "Size", [v], dtype=ir.DataType.INT64) for v in (magnitudes, mean)]
    numbers = [prober.add(graph, "Cast", [size], to) for size in sizes]
    return prober.add(graph, "Mul", [mean, prober.add(graph, "Div", numbers)])
