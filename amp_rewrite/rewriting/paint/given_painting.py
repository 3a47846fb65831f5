"""A painting that somebody chose: that of a model which came in 16 bits, noted in its nodes."""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.keys import GIVEN_KEY
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


def given_mask(type_graph: TypeGraph) -> Array | None:
    """Return a mask of the vertices that were low, or None for a model that notes nothing."""
    noted = {
        n: set(m[GIVEN_KEY].split()) for n, m in type_graph.flat.metadata.items() if GIVEN_KEY in m
    }
    if not noted:
        return None
    nodes = type_graph.nodes
    found = (
        not noted.get(node, set()).isdisjoint(type_graph.kind_of(vertex).variables)
        for vertex, node in enumerate(nodes)
    )
    return np.fromiter(found, np.bool_, len(nodes))


def given_marks(context: PaintContext, painting: Painting) -> dict[int, Mark]:
    """Return the marks of what was low, may stay so, and is not denied by a painting."""
    if context.given is None:
        return {}
    kept = context.given & context.processable & ~painting.deny
    return dict.fromkeys(vertices_in(kept), Mark(Color.ALLOW, Reason.GIVEN))
