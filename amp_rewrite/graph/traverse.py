"""What nodes read, in the graphs inside them too, and what values depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir


def ancestors(values: Iterable[ir.Value], within: set[ir.Node] | None = None) -> set[ir.Node]:
    """Return the nodes by which values are computed.

    Args:
        values: Where to begin.
        within: Only nodes of this set are entered; None is all.
    """
    found: set[ir.Node] = set()
    left = list(values)
    while left:
        node = left.pop().producer()
        if node is not None and node not in found and (within is None or node in within):
            found.add(node)
            left.extend(inputs_of(node))
    return found


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """Return what a node reads, in the graphs inside it too."""
    return [*(v for v in node.inputs if v is not None), *captured(node)]


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
        used.extend(inputs_of(node))
    used.extend(graph.outputs)
    return [v for v in used if v not in defined]
