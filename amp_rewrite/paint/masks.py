"""Masks: constants that only serve as "lower than everything", as in front of a Softmax."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.paint.reach import walk

ORDERING = frozenset(
    {"ArgMax", "Hardmax", "LogSoftmax", "Max", "MaxPool", "ReduceMax", "Softmax", "TopK"}
)
"""Operators for which a value far below all others is as good as minus infinity."""

MASKING = frozenset(
    {
        *("Add", "Where", "Mul", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze", "Concat", "Gather", "Pad", "Cast", "Flatten", "Split"),
    }
)
"""Operators through which a mask constant reaches them."""

_REPEATING = frozenset({"ConstantOfShape", "If"})


def ends_in_ordering(type_graph: TypeGraph, vertex: Vertex) -> bool:
    """Tell whether everything that a vertex computes ends in an ordering operator."""
    seen, stack = {vertex}, [vertex]
    while stack:
        current = stack.pop()
        operator = current.node.op_type
        if operator in ORDERING:
            continue
        consumers = list(type_graph.graph.successors(current))
        passes = operator in MASKING or operator in _REPEATING
        is_output = any(v.is_graph_output() for v in current.node.outputs)
        if not passes or not consumers or is_output:
            return False
        new = [c for c in consumers if c not in seen]
        seen.update(new)
        stack.extend(new)
    return True


def is_added(type_graph: TypeGraph, vertex: Vertex) -> bool:
    """Tell whether a mask is added to something on its way to the ordering operators."""
    behind = walk([vertex], type_graph.graph.successors, lambda v: v.node.op_type in MASKING)
    return any(v.node.op_type == "Add" for v in behind)
