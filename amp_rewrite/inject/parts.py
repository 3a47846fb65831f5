"""Say of each node of a finished training graph which part of it it is."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.graph.keys import PART_KEY
from amp_rewrite.graph.part import Part
from amp_rewrite.graph.traverse import nodes_in
from amp_rewrite.inject.regions import Regions


def mark_parts(regions: Regions) -> None:
    """Mark the nodes that bear no mark: a rewrite paints GRADIENT, and keeps UPDATE float32."""
    _mark(regions.backward, Part.GRADIENT)
    _mark(regions.update, Part.UPDATE)


def _mark(nodes: Iterable[ir.Node], part: Part) -> None:
    for outer in nodes:
        for node in nodes_in(outer):
            node.metadata_props.setdefault(PART_KEY, part)
