"""Connected regions of a graph whose vertices are numbers."""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.flat import ABSENT, Array


def connected_regions(inside: Array, edges: Array) -> Array:
    """Return, by vertex, the smallest vertex of its connected region; ABSENT outside.

    Every vertex points to one of its region that is no larger, at first to itself. The ends of an
    edge are joined by letting what the one points to point to what the other does, where that is
    smaller, and paths are then cut short; a few rounds join any region.

    Args:
        inside: A mask of the vertices.
        edges: Two columns; an edge counts if both of its ends are inside.
    """
    points_to = np.arange(len(inside))
    edges = edges[inside[edges].all(axis=1)]
    while True:
        ends = np.sort(points_to[edges], axis=1)
        ends = ends[ends[:, 0] != ends[:, 1]]
        if not len(ends):
            return np.where(inside, points_to, ABSENT)
        np.minimum.at(points_to, ends[:, 1], ends[:, 0])
        while not np.array_equal(shorter := points_to[points_to], points_to):
            points_to = shorter
