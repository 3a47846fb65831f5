"""Integers that the model uses as truth values, although their type does not say so.

Attention masks come as int64, as positions do. What tells them apart is what is done with them: a
mask is made a truth value somewhere, or it becomes 0 and "lower than everything" by a product with
a large negative constant, (1 - mask) * -10000, which no count would survive.
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.counts.small_constants import constant_elements
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has, row_of

LOWEST = -1000.0
"""A constant from here down masks; slopes and steps of positions are far above."""


def find_flags(type_graph: TypeGraph) -> frozenset[int]:
    """Return the values that are 0 or 1 as the model uses them."""
    found: set[int] = set()
    stack = [*_masking(type_graph), *_made_truth_values(type_graph)]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack += _flags_behind(type_graph, value)
    return frozenset(found)


def _masking(type_graph: TypeGraph) -> Iterator[int]:
    """Yield what is multiplied by "lower than everything"."""
    flat = type_graph.flat
    for node in flat.nodes_of("Mul"):
        first, second = flat.inputs_of(node)
        for value, other in ((first, second), (second, first)):
            constant = constant_elements(flat, other)
            if constant is not None and constant.size and constant.max() <= LOWEST:
                yield value


def _made_truth_values(type_graph: TypeGraph) -> Iterator[int]:
    """Yield the integers that are cast to truth values."""
    flat, types = type_graph.flat, type_graph.types
    for node in flat.nodes_of("Cast"):
        (read,), (made,) = flat.inputs_of(node), flat.outputs_of(node)
        if types[made] == "tensor(bool)" and "int" in (types[read] or ""):
            yield read


def _flags_behind(type_graph: TypeGraph, value: int) -> Iterator[int]:
    """Yield the flags of which a flag is made: moved, multiplied, or taken from 1."""
    flat, node = type_graph.flat, type_graph.flat.producer[value]
    if node == ABSENT:
        return
    called, inputs = flat.called(node), flat.inputs_of(node)
    data = row_of(called).data
    moved = [v for i, v in enumerate(inputs) if v != ABSENT and (data is None or i in data)]
    if has(called, Trait.MOVES, Trait.CASTS) or called[:2] == ("", "Mul"):
        yield from moved
    elif called[:2] == ("", "Sub") and constant_elements(flat, inputs[0]) is not None:
        yield inputs[1]
