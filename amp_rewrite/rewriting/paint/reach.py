"""Depth-first walks that remember where each vertex was reached from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amp_rewrite.graph.flat import Array

Parents = dict[int, int | None]
"""Visited vertex -> the vertex it was reached from; None for a root."""


def walk(roots: Iterable[int], neighbours: Callable[[int], Iterable[int]], enter: Array) -> Parents:
    """Return what a depth-first walk visits: every root, and else what the mask `enter` holds."""
    parents: Parents = dict.fromkeys(roots)
    may_enter = enter.tobytes()  # an entry of bytes is read faster than one of an array
    stack = list(parents)
    while stack:
        vertex = stack.pop()
        for other in neighbours(vertex):
            if may_enter[other] and other not in parents:
                parents[other] = vertex
                stack.append(other)
    return parents
