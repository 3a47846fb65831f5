"""Depth-first walks that remember where each vertex was reached from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amp_rewrite.graph.dataflow import Vertex

Parents = dict[Vertex, Vertex | None]
"""Visited vertex -> the vertex it was reached from; None for a root."""


def walk(
    roots: Iterable[Vertex],
    neighbours: Callable[[Vertex], Iterable[Vertex]],
    enter: Callable[[Vertex], bool],
) -> Parents:
    """Return what a depth-first walk visits: every root, and else where `enter` holds."""
    parents: Parents = dict.fromkeys(roots)
    stack = list(parents)
    while stack:
        vertex = stack.pop()
        for other in neighbours(vertex):
            if other not in parents and enter(other):
                parents[other] = vertex
                stack.append(other)
    return parents
