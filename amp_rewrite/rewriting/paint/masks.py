"""Masks: constants that only serve as "lower than everything", as in front of a Softmax."""

from __future__ import annotations

import numpy as np

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.beyond_range import may_leave_range
from amp_rewrite.rewriting.paint.context import PaintContext
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


def overflows_below_only(constant: Stream, low: DType) -> bool:
    """Tell whether every finite element out of range is negative."""
    limit = np.float32(low.overflow)
    return not any(bool(((c >= limit) & np.isfinite(c)).any()) for c in constant.blocks())


def saturates_in_float32(context: PaintContext, value: int) -> bool:
    """Tell whether a mask out of range may end at the low type's lowest value in float32 as well.

    It is cast at run time then, which would make it infinite. In a type as wide as float32 both
    fills swallow every score, so that rows that are masked as a whole come out the same.
    """
    graph, low = context.type_graph, context.low
    if may_leave_range(low) or not context.converts_weights:
        return False
    tensor = constant_tensor(graph, value)
    return (
        tensor is not None
        and may_stand_behind_cast(context, value)
        and all(ends_in_ordering(graph, vertex) for vertex in graph.readers(value))
        and overflows_below_only(graph.flat.elements(tensor), low)
    )


def may_stand_behind_cast(context: PaintContext, value: int) -> bool:
    """Tell whether a Cast may come between a constant and all that reads it.

    What is opaque gets what it got; a node that the user preserves is not touched; what a Cast of
    the model reads would be cast twice; and an output of a graph keeps its type.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    if flat.is_output(value):
        return False
    for slot in flat.uses(value):
        node = flat.reader(slot)
        if graph.reads[slot] == ABSENT or flat.called(node)[:2] == ("", "Cast"):
            return False
        if graph.ports_of(node).schema is None or flat.node_names[node] in context.rules.preserve:
            return False
    return True
