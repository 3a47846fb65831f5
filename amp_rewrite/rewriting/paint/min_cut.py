"""The cheapest choice of a set: a minimum cut, by what is certain first and a flow for the rest.

Whether a vertex is in the set costs something of its own, and an arc costs something if its tail is
in the set and its head is not. The cheapest set is a minimum s-t cut (J. Picard, H. Ratliff,
"Minimum cuts and related problems", 1975). Of real models nearly all vertices are certain: what a
vertex gains or loses is more than all its arcs can cost (P. Hammer et al., "Roof duality", 1984,
calls that persistency). A certain vertex hands what its arcs cost on to its neighbours, which may
be certain then. What remains is cut into connected parts, and each gets a maximum flow (E. Dinic,
1970) between what wants to be in the set and what does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amp_rewrite.graph.flat import Array
from amp_rewrite.rewriting.paint.region_costs import connected_regions

MOST_ROUNDS = 64
"""How often neighbours are asked again what is certain; a flow decides long chains as well."""


@dataclass(frozen=True)
class Arcs:
    """Arcs between vertices.

    Attributes:
        tails: By arc, where it begins.
        heads: By arc, where it ends.
        costs: By arc, what it costs if its tail is in the set and its head is not; not negative.
    """

    tails: Array
    heads: Array
    costs: Array

    def among(self, inside: Array) -> Arcs:
        """Return the arcs both of whose ends are in a mask."""
        kept = inside[self.tails] & inside[self.heads]
        return Arcs(self.tails[kept], self.heads[kept], self.costs[kept])


def cheapest_set(costs: Array, arcs: Arcs) -> Array:
    """Return a mask of the cheapest set; of several, of the one that is contained in all others.

    Args:
        costs: By vertex, what it costs in the set more than outside, as int64; negative: a gain.
        arcs: What it costs to separate vertices, as int64.
    """
    costs = costs.astype(np.int64)
    chosen, open_ = _certain(costs, arcs)
    arcs = arcs.among(open_)
    labels = connected_regions(open_, np.stack((arcs.tails, arcs.heads), axis=1))
    vertices = np.flatnonzero(open_)
    vertices = vertices[np.argsort(labels[vertices], kind="stable")]
    parts, starts = np.unique(labels[vertices], return_index=True)
    place = np.zeros(len(costs), np.int64)
    place[vertices] = np.arange(len(vertices)) - np.repeat(
        starts, np.diff((*starts, len(vertices)))
    )
    order = np.argsort(labels[arcs.tails], kind="stable")
    rows = np.stack((place[arcs.tails], place[arcs.heads], arcs.costs), axis=1)[order].tolist()
    bounds = np.searchsorted(labels[arcs.tails][order], (*parts, len(costs))).tolist()
    for part, first, last in zip(np.split(vertices, starts[1:]), bounds, bounds[1:], strict=False):
        flow = _Flow((-costs[part]).tolist(), rows[first:last])
        chosen[part[flow.source_side()]] = True
    return chosen


def _certain(costs: Array, arcs: Arcs) -> tuple[Array, Array]:
    """Return which vertices are in the set for certain, and which are not decided.

    `costs` of the latter become what they are with the arcs from and to what is decided.
    """
    chosen, open_ = np.zeros(len(costs), np.bool_), np.ones(len(costs), np.bool_)
    for _ in range(MOST_ROUNDS):
        out, into = np.zeros_like(costs), np.zeros_like(costs)
        np.add.at(out, arcs.tails, arcs.costs)
        np.add.at(into, arcs.heads, arcs.costs)
        joins, leaves = open_ & (costs + out < 0), open_ & (costs >= into)
        if not (joins.any() or leaves.any()):
            break
        chosen |= joins
        open_ &= ~(joins | leaves)
        towards, from_ = leaves[arcs.heads], joins[arcs.tails]
        np.add.at(costs, arcs.tails[towards], arcs.costs[towards])
        np.subtract.at(costs, arcs.heads[from_], arcs.costs[from_])
        arcs = arcs.among(open_)
    return chosen, open_


class _Flow:
    """A maximum flow from vertices with an excess to vertices with a lack, over arcs."""

    def __init__(self, excess: list[int], arcs: Sequence[Sequence[int]]) -> None:
        """Take the network.

        Args:
            excess: By vertex, what flows in from the source; negative: what may flow to the sink.
            arcs: Tail, head and capacity of each. Its number is even here, and the odd number
                behind it that of the way back.
        """
        self._excess = excess
        self._out: list[list[int]] = [[] for _ in excess]
        self._head = [end for tail, head, _ in arcs for end in (head, tail)]
        self._left = [left for *_, capacity in arcs for left in (capacity, 0)]
        for number, (tail, head, _) in enumerate(arcs):
            self._out[tail].append(2 * number)
            self._out[head].append(2 * number + 1)

    def source_side(self) -> list[int]:
        """Return the vertices that excess still reaches once no more can flow off."""
        while True:
            levels, reaches_lack = self._levels()
            if not reaches_lack:
                return [vertex for vertex, level in enumerate(levels) if level >= 0]
            tried = [0] * len(self._out)
            for vertex, level in enumerate(levels):
                if level == 0:
                    self._drain(vertex, levels, tried)

    def _levels(self) -> tuple[list[int], bool]:
        """Return, by vertex, how many arcs it is from an excess (-1: none), and if a lack is near.

        What is further off than the nearest lack has no level, if there is one.
        """
        levels = [0 if excess > 0 else -1 for excess in self._excess]
        ring, level = [v for v, reached in enumerate(levels) if not reached], 0
        while ring:
            if any(self._excess[vertex] < 0 for vertex in ring):
                return levels, True
            level, following = level + 1, list[int]()
            for vertex in ring:
                for arc in self._out[vertex]:
                    head = self._head[arc]
                    if self._left[arc] and levels[head] < 0:
                        levels[head] = level
                        following.append(head)
            ring = following
        return levels, False

    def _drain(self, root: int, levels: list[int], tried: list[int]) -> None:
        """Send the excess of a vertex along paths of rising levels, until none is left or none is.

        Args:
            root: The vertex.
            levels: By vertex, its level.
            tried: By vertex, how many of its arcs lead nowhere any more.
        """
        out, heads, left, excess = self._out, self._head, self._left, self._excess
        path: list[int] = []
        vertex = root
        while excess[root] > 0:
            if excess[vertex] < 0:
                sent = min(excess[root], -excess[vertex], *(left[arc] for arc in path))
                excess[root] -= sent
                excess[vertex] += sent
                for arc in path:
                    left[arc] -= sent
                    left[arc ^ 1] += sent
                path.clear()
                vertex = root
                continue
            arcs = out[vertex]
            while tried[vertex] < len(arcs):
                arc = arcs[tried[vertex]]
                if left[arc] and levels[heads[arc]] == levels[vertex] + 1:
                    path.append(arc)
                    vertex = heads[arc]
                    break
                tried[vertex] += 1
            else:
                if not path:
                    return
                vertex = heads[path.pop() ^ 1]
                tried[vertex] += 1
