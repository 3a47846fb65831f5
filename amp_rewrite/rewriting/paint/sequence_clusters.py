"""The operators that handle one sequence: what a handle edge connects is low or nothing is."""

from __future__ import annotations

from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.traits import Trait, has

Cluster = tuple[int, ...]


def sequence_clusters(type_graph: TypeGraph) -> tuple[Cluster, ...]:
    """Return the clusters of sequence operators, in execution order of their first member."""
    members = vertices_in(
        type_graph.having(Trait.SEQUENCE)
        | type_graph.where(
            lambda k: has(k.operator, Trait.PASSES_SEQUENCE) and k.type != "tensor(float)"
        )
    )
    if not members and not type_graph.handles:
        return ()
    import networkx as nx

    handles = nx.Graph(type_graph.handles)
    handles.add_nodes_from(members)
    return tuple(sorted(tuple(sorted(c)) for c in nx.connected_components(handles)))
