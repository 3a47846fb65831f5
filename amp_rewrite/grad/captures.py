"""The values of outer graphs that a node's subgraphs read."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def captured(node: ir.Node) -> list[ir.Value]:
    """Return the outer values that a node's subgraphs use, each once, in order of use."""
    found: dict[ir.Value, None] = {}
    for graph in subgraphs(node):
        found.update(dict.fromkeys(_outer(graph)))
    return list(found)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs among a node's attributes."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH and not attribute.is_ref():
            yield attribute.as_graph()


def _outer(graph: ir.Graph) -> list[ir.Value]:
    """Return the values that a graph uses and does not define."""
    defined: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    used: list[ir.Value] = []
    for node in graph:
        defined.update(node.outputs)
        used.extend(v for v in node.inputs if v is not None)
        used.extend(captured(node))
    used.extend(graph.outputs)
    return [v for v in used if v not in defined]
