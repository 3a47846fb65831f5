"""The operators that handle one sequence: what a handle edge connects is low or nothing is."""

from __future__ import annotations

import networkx as nx

from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.traits import Trait, has

Cluster = tuple[Vertex, ...]


def sequence_clusters(type_graph: TypeGraph) -> tuple[Cluster, ...]:
    """Return the clusters of sequence operators, in execution order of their first member."""
    handles = nx.Graph(type_graph.handles)
    handles.add_nodes_from(
        v for v in type_graph.vertices() if has(v.node, Trait.SEQUENCE) or _carries_handle(v)
    )
    order = {v: i for i, v in enumerate(type_graph.vertices())} if len(handles) else {}
    clusters = [tuple(sorted(c, key=order.__getitem__)) for c in nx.connected_components(handles)]
    return tuple(sorted(clusters, key=lambda c: order[c[0]]))


def _carries_handle(vertex: Vertex) -> bool:
    return has(vertex.node, Trait.PASSES_SEQUENCE) and vertex.kind.type != "tensor(float)"
