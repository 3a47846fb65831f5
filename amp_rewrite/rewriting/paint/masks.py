"""Masks: numbers that only serve as "lower than everything", as in front of a Softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import TABLE, Trait, having, operator, row_of
from amp_rewrite.rewriting.paint.context import PaintContext

MASKING = having(Trait.MOVES, Trait.CASTS, Trait.ADDS) | {"Mul"}
"""Operators through which a mask constant reaches those that order."""

# operators: what becomes of a mask there is one: some of its elements, their negative, a sum.
_HANDING_ON = frozenset({"Clip", "CumSum", "Div", "Min", "Neg", "ReduceMin", "ReduceSum", "Sub"})
# operators: the largest of some elements.
_ORDERING_ELEMENTS = frozenset({"GlobalMaxPool", "Max", "MaxPool", "ReduceMax", "TopK"})

CARRYING = MASKING | _HANDING_ON | _ORDERING_ELEMENTS
"""Operators whose results have the elements of a mask, or sums of them."""

# operators: sums, with those that no trait tells from others.
SUMMING = having(Trait.ADDS) | {"CumSum", "ReduceSum", "Sub"}

_ATTENDING = frozenset(name for name, row in TABLE.items() if row.masks)

_PASSES = (MASKING | _HANDING_ON | having(Trait.HOLDS, Trait.SUBGRAPHS)) - having(Trait.LOOPS)

# operators: those that hand on a mask if it is their first input.
_FIRST_ONLY = ("Clip", "Div")

# operators: those in which every element of a row counts.
_SOFTMAX = ("LogSoftmax", "Softmax")

# operators: those that make shares of what they read.
SHARING = frozenset({"LogSoftmax", "ReduceLogSumExp", "Softmax"})


def ends_in_ordering(
    type_graph: TypeGraph,
    vertex: int,
    value: int = ABSENT,
    ordering: frozenset[str] = having(Trait.ORDERS),
) -> bool:
    """Tell whether everything that a vertex computes ends in an ordering operator.

    Args:
        type_graph: The model.
        vertex: The vertex.
        value: What it reads of which that is asked: an attention orders its mask alone.
        ordering: The operators that order, besides those that contain a Softmax.
    """
    if _attends(type_graph, vertex):
        return value != ABSENT and enters_as_mask(type_graph, vertex, lambda v: v == value)
    seen, stack = {vertex}, [vertex]
    while stack:
        current = stack.pop()
        called = operator(type_graph.operator_of(current))
        if called in ordering or (called == "Exp" and is_shift(type_graph, current)):
            continue
        consumers = type_graph.successors(current)
        passes = called in _PASSES or called in _ORDERING_ELEMENTS
        if not passes or not consumers or _is_output(type_graph, current):
            return False
        for consumer in consumers:
            if not _hands_on(type_graph, current, consumer):
                return False
            if consumer not in seen and not _attends(type_graph, consumer):
                seen.add(consumer)
                stack.append(consumer)
    return True


def softmaxes(type_graph: TypeGraph) -> Iterator[tuple[int, int]]:
    """Yield the nodes that make shares of scores, and the scores.

    That is the Exp of a Softmax that is written out, as Sub of the largest, Exp, sum and quotient.
    """
    flat = type_graph.flat
    for node in flat.nodes_of(*_SOFTMAX):
        yield node, flat.inputs_of(node)[0]
    for node in flat.nodes_of("Exp"):
        scores = _shifted(type_graph, node)
        if scores != ABSENT:
            yield node, scores


def is_shift(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a vertex of an Exp reads scores less the largest of them."""
    return _shifted(type_graph, type_graph.nodes[vertex]) != ABSENT


def _shifted(type_graph: TypeGraph, exponential: int) -> int:
    """Return the scores of which an Exp gets what they are less than their largest, or ABSENT."""
    flat = type_graph.flat
    difference = flat.producer[flat.inputs_of(exponential)[0]]
    if difference == ABSENT or flat.called(difference)[:2] != ("", "Sub"):
        return ABSENT
    scores, largest = flat.inputs_of(difference)
    maximum = flat.producer[largest]
    if maximum == ABSENT or flat.called(maximum)[:2] != ("", "ReduceMax"):
        return ABSENT
    return scores if flat.inputs_of(maximum)[0] == scores else ABSENT


def enters_as_mask(type_graph: TypeGraph, vertex: int, comes: Callable[[int], bool]) -> bool:
    """Tell whether a vertex reads what `comes` as the mask of an attention and nowhere else."""
    masks = row_of(type_graph.operator_of(vertex)).masks
    indices = _indices(type_graph, vertex, comes) if masks else []
    return bool(indices) and all(index in masks for index in indices)


def _attends(type_graph: TypeGraph, vertex: int) -> bool:
    return bool(row_of(type_graph.operator_of(vertex)).masks)


def _hands_on(type_graph: TypeGraph, vertex: int, consumer: int) -> bool:
    """Tell whether a consumer reads what a vertex makes in such a way that it stays a mask."""
    source = type_graph.source
    if _attends(type_graph, consumer):
        return enters_as_mask(type_graph, consumer, lambda v: source[v] == vertex)
    if type_graph.operator_of(consumer).op_type not in _FIRST_ONLY:
        return True
    return not any(_indices(type_graph, consumer, lambda v: source[v] == vertex))


def _indices(type_graph: TypeGraph, vertex: int, comes: Callable[[int], bool]) -> Iterable[int]:
    """Return at which inputs a vertex reads values."""
    flat, node = type_graph.flat, type_graph.nodes[vertex]
    slots = range(flat.input_start[node], flat.input_start[node + 1])
    mine = (slot for slot in slots if type_graph.reads[slot] == vertex)
    return [flat.index(slot) for slot in mine if comes(flat.inputs[slot])]


def _is_output(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a vertex writes an output of the model; that of a branch is its owner's."""
    flat = type_graph.flat
    written = flat.outputs_of(type_graph.nodes[vertex])
    return any(flat.is_output(value) and flat.home[value] == MAIN for value in written)


def is_added(type_graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a mask is added to something on its way to the ordering operators."""
    return bool(sums_behind(type_graph, vertex))


def sums_behind(type_graph: TypeGraph, vertex: int) -> set[int]:
    """Return the vertices that add something to a mask on its way to the ordering operators.

    An attention adds it to its scores.
    """
    ways = type_graph.called(CARRYING | _ATTENDING)
    behind = walk([vertex], type_graph.successors, ways)
    adds = SUMMING | _ATTENDING
    return {v for v in behind if operator(type_graph.operator_of(v)) in adds}


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
        and all(ends_in_ordering(graph, vertex, value) for vertex in graph.readers(value))
        and overflows_below_only(tensor.stream, low)
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
