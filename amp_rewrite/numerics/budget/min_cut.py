"""The cheapest choice of a set: a minimum cut, by what is certain first and a flow for the rest.

Whether a vertex is in the set costs something of its own, and an arc costs something if its tail is
in the set and its head is not. The cheapest set is a minimum s-t cut (J. Picard, H. Ratliff,
"Minimum cuts and related problems", 1975). Of real models nearly all vertices are certain: what a
vertex gains or loses is more than all its arcs can cost (P. Hammer et al., "Roof duality", 1984,
calls that persistency). A certain vertex hands what its arcs cost on to its neighbours, which may
be certain then. What remains is cut into connected parts, of a dozen
vertices at most in the models of tests/corpus, and each gets a maximum flow between what wants to
be in the set and what does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amp_rewrite.graph.flat import ABSENT, Array

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
        chosen[part[_source_side((-costs[part]).tolist(), rows[first:last])]] = True
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


def _source_side(excess: list[int], arcs: Sequence[Sequence[int]]) -> list[int]:
    """Return the vertices that excess still reaches once no more of it can flow off.

    Args:
        excess: By vertex, what flows in; negative: what may flow off there.
        arcs: Tail, head and capacity of each.
    """
    import networkx as nx  # most models leave nothing to a flow

    network = nx.DiGraph()
    source, sink = -1, -2
    network.add_nodes_from((source, sink, *range(len(excess))))
    ends = ((source, v, e) if e > 0 else (v, sink, -e) for v, e in enumerate(excess))
    for tail, head, capacity in (*ends, *arcs):
        capacity_before = network.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        network.add_edge(tail, head, capacity=capacity_before + capacity)
    residual = nx.algorithms.flow.boykov_kolmogorov(network, source, sink)
    full = [(t, h) for t, h, arc in residual.edges(data=True) if arc["flow"] >= arc["capacity"]]
    residual.remove_edges_from(full)
    return sorted(nx.descendants(residual, source))


def connected_regions(inside: Array, edges: Array) -> Array:
    """Return, by vertex, the smallest vertex of its connected region; ABSENT outside.

    Every vertex points to one of its region that is no larger, at first to itself. The ends of an
    edge are joined by letting what the one points to point to what the other does, where that is
    smaller, and paths are then cut short; a few rounds join any region. An edge counts if both of
    its ends are inside.
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
