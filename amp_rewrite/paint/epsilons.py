"""Constants that round to zero in the low type and thereby change the result.

x / (|x| + 1e-12) is finite for x = 0; in float16 the 1e-12 is zero and the quotient NaN. A constant
counts if every nonzero element of it rounds to zero, so a weight tensor with a few tiny elements
never does. It matters where it is a factor or a divisor, and where it keeps a divisor, a logarithm,
a square root or a power away from zero (Add, Sub, Max, the lower bound of Clip). Then its consumer
stays float32, and so does everything up to and including the operator that zero would upset, for a
cast in between would make the sum zero again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.tensors import chunks
from amp_rewrite.paint.constant_facts import ConstantFacts
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

LARGEST = 4096
"""Elements of the largest constant that is looked at: an epsilon per channel, not a weight."""

_FACTORS: Mapping[str, tuple[int, ...]] = {"Div": (0, 1), "Mul": (0, 1)}
_GUARDS: Mapping[str, tuple[int, ...]] = {"Add": (0, 1), "Clip": (1,), "Max": (0, 1), "Sub": (1,)}
_UPSET: Mapping[str, int] = {"Div": 1, "Log": 0, "Pow": 0, "Reciprocal": 0, "Sqrt": 0}
_PASSES_ON = frozenset(
    {
        *("Abs", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)


def underflows(facts: ConstantFacts, painting: Painting) -> Mapping[Vertex, Mark]:
    """Return a mark for every painted vertex that a constant rounding to zero keeps float32."""
    type_graph, low = facts.type_graph, facts.low
    tiny: dict[ir.Value, float] = {}
    marks: dict[Vertex, Mark] = {}
    for vertex in painting.allowed():
        node = vertex.node
        for index in (*_FACTORS.get(node.op_type, ()), *_GUARDS.get(node.op_type, ())):
            value = _read_by(type_graph, vertex, index)
            if value is None:
                continue
            if value not in tiny:
                tiny[value] = _largest_if_zero(type_graph, value, low)
            found = _marks(type_graph, painting, vertex, index, tiny[value], low)
            if tiny[value] and found:
                marks |= found
                facts.zeroed[vertex] = value
    return marks


def _read_by(type_graph: TypeGraph, vertex: Vertex, index: int) -> ir.Value | None:
    """Return the constant that a vertex reads at an input of its node, or None."""
    node = vertex.node
    if node.domain != "" or index >= len(node.inputs):
        return None
    value = node.inputs[index]
    if value is None or type_graph.nodes[node].inputs[index] is not vertex:
        return None
    return value if constant_tensor(type_graph, value) is not None else None


def _largest_if_zero(type_graph: TypeGraph, value: ir.Value, low: DType) -> float:
    """Return a constant's largest magnitude if all of it rounds to zero, else 0."""
    tensor = constant_tensor(type_graph, value)
    if tensor is None or tensor.size > LARGEST:
        return 0.0
    arrays = [np.abs(chunk) for chunk in chunks(tensor)]
    largest = max((float(a.max()) for a in arrays if a.size), default=0.0)
    return largest if largest <= low.smallest_subnormal / 2 else 0.0


def _marks(
    type_graph: TypeGraph,
    painting: Painting,
    vertex: Vertex,
    index: int,
    magnitude: float,
    low: DType,
) -> dict[Vertex, Mark]:
    node = vertex.node
    value = node.inputs[index]
    fact = f"constant {value.name if value else ''} = {magnitude:.3g} rounds to zero in {low.name}"
    if node.op_type in _FACTORS:
        role = "divides" if (node.op_type, index) == ("Div", 1) else "multiplies"
        return {vertex: _mark(None, f"{fact}, and {role}")}
    paths = list(_paths_to_upset(type_graph, node, magnitude, low))
    if not paths:
        return {}
    upset = paths[0][-1]
    marks = {vertex: _mark(None, f"{fact}, and keeps {upset.name} away from zero")}
    for path in paths:
        for behind in path:
            for other in type_graph.nodes[behind].all:
                if other is not vertex and painting.is_allow(other):
                    marks[other] = _mark(vertex, f"{fact}, and {behind.op_type} needs the sum")
    return marks


def _paths_to_upset(
    type_graph: TypeGraph, node: ir.Node, magnitude: float, low: DType
) -> Iterator[list[ir.Node]]:
    """Yield the nodes from behind a guard to each operator that zero would upset."""
    stack: list[tuple[ir.Node, list[ir.Node], float]] = [(node, [], magnitude)]
    seen = {node}
    while stack:
        current, path, size = stack.pop()
        for use in current.outputs[0].uses():
            reader = use.node
            if reader in seen or reader.domain != "" or reader not in type_graph.nodes:
                continue
            seen.add(reader)
            upset = _UPSET.get(reader.op_type) == use.idx
            if upset:
                yield [*path, reader]
            if reader.op_type == "Sqrt" and math.sqrt(size) <= low.smallest_subnormal / 2:
                stack.append((reader, [*path, reader], math.sqrt(size)))
            elif reader.op_type in _PASSES_ON:
                stack.append((reader, [*path, reader], size))


def _mark(because: Vertex | None, detail: str) -> Mark:
    return Mark(Color.NONE, Reason.CONSTANT_UNDERFLOW, because, detail)
