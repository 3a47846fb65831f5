"""Kinds of nodes: what a rule says of one node, it says of every node of its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph

ShapeOf = Callable[[int], "Sequence[int | None] | None"]
"""Returns the shape of a value, or None."""


def node_kinds(
    type_graph: TypeGraph,
    operators: Collection[int],
    same: Sequence[int],
    shape_of: ShapeOf | None = None,
) -> list[int]:
    """Return, by node, the number of its kind; ABSENT for a node of another operator.

    Nodes of one kind make equal calls with equal attributes, have outputs of equal shapes, and read
    one value at two places where the others do. What their inputs are is not part of it.
    `operators` hold no graph; `same` is by value the one that it is the same as
    (`behind_identities`). Shapes are those that are recorded or inferred, unless `shape_of` is
    given.
    """
    flat, calls = type_graph.flat, type_graph.call.tolist()
    read, first, behind = flat.inputs, flat.input_start, flat.output_start
    shape_of = flat.shape if shape_of is None else shape_of
    # of what nodes make, in the order of `flat.outputs`
    shapes = [None if (s := shape_of(v)) is None else tuple(s) for v in flat.outputs]
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


def _repetition(values: Sequence[int]) -> tuple[int, ...] | None:
    """Return where each value stands first, or None if none of them is there twice."""
    if len(set(values)) == len(values):
        return None
    return tuple(values.index(value) for value in values)


def behind_identities(flat: FlatGraph) -> Sequence[int]:
    """Return, by value, the value that it is the same as: itself, unless an Identity makes it.

    The last entry is ABSENT, for an input that is left out.
    """
    same = [*range(flat.n_values), ABSENT]
    hands_on = [called[:2] == ("", "Identity") for called in flat.operators]
    if any(hands_on):
        for node, operator in enumerate(flat.operator):
            if hands_on[operator] and flat.inputs_of(node):
                same[flat.outputs_of(node)[0]] = same[flat.inputs_of(node)[0]]
    return same
