"""C: the operators that handle one sequence share one color.

A sequence has one element type, so everything that a handle edge connects is low or nothing is. A
cluster whose sequence leaves the pass's sight (a graph input or output, an Optional operator, a
SequenceMap, a function call, a vertex that may not be touched) is denied before the first pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx

from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.ports import (
    HANDLE_CARRIERS,
    SEQUENCE_OPS,
)
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason

Cluster = tuple[Vertex, ...]


def sequence_clusters(type_graph: TypeGraph) -> list[Cluster]:
    """Return the clusters of sequence operators, in execution order of their first member."""
    handles = nx.Graph(type_graph.handles)
    handles.add_nodes_from(
        v for v in type_graph.vertices() if _is_sequence_operator(v) or _carries_handle(v)
    )
    order = {v: i for i, v in enumerate(type_graph.vertices())} if len(handles) else {}
    clusters = [tuple(sorted(c, key=order.__getitem__)) for c in nx.connected_components(handles)]
    return sorted(clusters, key=lambda c: order[c[0]])


def deny_opaque_clusters(
    context: PaintContext, clusters: Iterable[Cluster], painting: Painting
) -> Painting:
    """Return the painting with the clusters denied whose sequence the pass cannot follow."""
    marks: dict[Vertex, Mark] = {}
    for cluster in clusters:
        detail = _opaque(context, cluster)
        if detail is not None:
            marks |= dict.fromkeys(cluster, Mark(Color.DENY, Reason.SEQUENCE_DENIED, None, detail))
    return painting.with_marks(marks)


@dataclass(frozen=True)
class MatchSequences:
    """Deny a cluster with a denied member; otherwise paint one with a painted member."""

    name: ClassVar[str] = "match-sequences"
    clusters: tuple[Cluster, ...]

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with every cluster in one color."""
        del context
        marks: dict[Vertex, Mark] = {}
        for cluster in self.clusters:
            denied = next((v for v in cluster if painting.is_deny(v)), None)
            allowed = next((v for v in cluster if painting.is_allow(v)), None)
            if denied is not None:
                mark = Mark(Color.DENY, Reason.SEQUENCE_DENIED, denied)
                marks |= {v: mark for v in cluster if not painting.is_deny(v)}
            elif allowed is not None:
                mark = Mark(Color.ALLOW, Reason.SEQUENCE, allowed)
                marks |= {v: mark for v in cluster if not painting.is_allow(v)}
        return painting.with_marks(marks)


def _carries_handle(vertex: Vertex) -> bool:
    return vertex.node.op_type in HANDLE_CARRIERS and vertex.kind.type != "tensor(float)"


def _is_sequence_operator(vertex: Vertex) -> bool:
    return vertex.node.op_type in SEQUENCE_OPS and vertex.node.domain == ""


def _opaque(context: PaintContext, cluster: Cluster) -> str | None:
    """Return a sentence that says why the pass must leave a cluster alone, or None."""
    opaque_ends = context.type_graph.opaque_ends
    for vertex in cluster:
        node = vertex.node
        if not _is_sequence_operator(vertex) and node.op_type not in HANDLE_CARRIERS:
            return f"its sequence passes through {node.op_type} {node.name}"
        refusal = context.refusal(vertex)
        if refusal is not None:
            return f"its member {node.name} stays float32: {refusal.detail}"
        if not context.supports(vertex):
            return f"{node.op_type} {node.name} does not admit {context.low.name}"
        end = next((v for v in (*node.inputs, *node.outputs) if v in opaque_ends), None)
        if end is not None:
            return f"its sequence {end.name} enters or leaves where the pass cannot follow it"
    return None
