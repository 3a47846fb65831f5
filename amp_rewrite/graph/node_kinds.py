"""Kinds of nodes: what a rule says of one node, it says of every node of its kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT


def node_kinds(type_graph: TypeGraph, operators: Collection[int], same: Sequence[int]) -> list[int]:
    """Return, by node, the number of its kind; ABSENT for a node of another operator.

    Nodes of one kind make equal calls with equal attributes, record equal shapes of their outputs,
    and read one value at two places where the others do. What their inputs are is not part of it.

    Args:
        type_graph: The model.
        operators: The numbers of the operators concerned; none of them holds a graph.
        same: By value, the one that it is the same as (`behind_identities`).
    """
    flat, calls = type_graph.flat, type_graph.call.tolist()
    read, first, behind = flat.inputs, flat.input_start, flat.output_start
    shapes = _output_shapes(type_graph)
    seen: dict[tuple[object, ...], int] = {}
    kinds: list[int] = []
    for node, operator in enumerate(flat.operator):
        if operator not in operators:
            kinds.append(ABSENT)
            continue
        inputs = read[first[node] : first[node + 1]]
        key = (
            calls[node],
            flat.spelled_attributes(node),
            tuple(shapes[behind[node] : behind[node + 1]]),
            _repetition([same[value] for value in inputs]) if len(inputs) > 1 else None,
        )
        kinds.append(seen.setdefault(key, len(seen)))
    return kinds


def _output_shapes(type_graph: TypeGraph) -> list[tuple[int | None, ...] | None]:
    """Return the recorded shapes of the values that nodes make, in the order of `flat.outputs`."""
    shape = type_graph.flat.shape
    recorded = map(shape, type_graph.flat.outputs)
    return [None if lengths is None else tuple(lengths) for lengths in recorded]


def _repetition(values: Sequence[int]) -> tuple[int, ...] | None:
    """Return where each value stands first, or None if none of them is there twice."""
    if len(set(values)) == len(values):
        return None
    return tuple(values.index(value) for value in values)
