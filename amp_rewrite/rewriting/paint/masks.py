"""Masks: constants that only serve as "lower than everything", as in front of a Softmax."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.reach import walk

MASKING = having(Trait.MOVES, Trait.CASTS, Trait.ADDS) | {"Mul"}
"""Operators through which a mask constant reaches those that order."""

_PASSES = (MASKING | having(Trait.HOLDS, Trait.SUBGRAPHS)) - having(Trait.LOOPS)


def ends_in_ordering(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether everything that a vertex computes ends in an ordering operator."""
    seen, stack = {vertex}, [vertex]
    while stack:
        current = stack.pop()
        called = type_graph.operator_of(current)
        if has(called, Trait.ORDERS):
            continue
        consumers = type_graph.successors(current)
        if operator(called) not in _PASSES or not consumers or _is_output(type_graph, current):
            return False
        new = [c for c in consumers if c not in seen]
        seen.update(new)
        stack.extend(new)
    return True


def _is_output(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a vertex writes an output of the model; that of a branch is its owner's."""
    flat = type_graph.flat
    written = flat.outputs_of(type_graph.nodes[vertex])
    return any(flat.is_output(value) and flat.home[value] == MAIN for value in written)


def is_added(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a mask is added to something on its way to the ordering operators."""
    behind = walk([vertex], type_graph.successors, type_graph.called(MASKING))
    return any(has(type_graph.operator_of(v), Trait.ADDS) for v in behind)
