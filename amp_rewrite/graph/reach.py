"""Depth-first walks, and the data that nodes read, along which they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.traits import row_of


def walk(
    roots: Iterable[int], neighbours: Callable[[int], Iterable[int]], enter: Array | None = None
) -> dict[int, int | None]:
    """Return what a depth-first walk visits -> where that was reached from; None for a root.

    `enter` is a mask of what may be visited besides the roots; None for all.
    """
    parents: dict[int, int | None] = dict.fromkeys(roots)
    # an entry of bytes is read faster than one of an array
    may_enter = None if enter is None else enter.tobytes()
    stack = list(parents)
    while stack:
        place = stack.pop()
        for other in neighbours(place):
            if (may_enter is None or may_enter[other]) and other not in parents:
                parents[other] = place
                stack.append(other)
    return parents


def data_of(flat: FlatGraph, node: int) -> list[int]:
    """Return the values that a node reads as data: those that are there, settings left aside."""
    data, inputs = row_of(flat.called(node)).data, flat.inputs_of(node)
    return [v for k, v in enumerate(inputs) if v != ABSENT and (data is None or k in data)]
