"""Masks: constants that only serve as "lower than everything", as in front of a Softmax."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.paint.reach import walk

MASKING = having(Trait.MOVES, Trait.CASTS, Trait.ADDS) | {"Mul"}
"""Operators through which a mask constant reaches those that order."""

_PASSES = (MASKING | having(Trait.HOLDS, Trait.SUBGRAPHS)) - having(Trait.LOOPS)


def ends_in_ordering(type_graph: TypeGraph, vertex: Vertex) -> bool:
    """Tell whether everything that a vertex computes ends in an ordering operator."""
    seen, stack = {vertex}, [vertex]
    while stack:
        current = stack.pop()
        if has(current.node, Trait.ORDERS):
            continue
        consumers = list(type_graph.graph.successors(current))
        passes = operator(current.node) in _PASSES
        is_output = any(v.is_graph_output() for v in current.node.outputs)
        if not passes or not consumers or is_output:
            return False
        new = [c for c in consumers if c not in seen]
        seen.update(new)
        stack.extend(new)
    return True


def is_added(type_graph: TypeGraph, vertex: Vertex) -> bool:
    """Tell whether a mask is added to something on its way to the ordering operators."""
    behind = walk([vertex], type_graph.graph.successors, lambda v: operator(v.node) in MASKING)
    return any(has(v.node, Trait.ADDS) for v in behind)
