"""The graphs and nodes inside nodes, what these read, and what values depend on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnx import AttributeProto

if TYPE_CHECKING:
    import onnx_ir as ir


def ancestors(values: Iterable[ir.Value], within: set[ir.Node] | None = None) -> set[ir.Node]:
    """Return the nodes by which values are computed, entering only those `within`; None is all."""
    nodes: set[ir.Node] = set()
    left = list(values)
    while left:
        node = left.pop().producer()
        if node is not None and node not in nodes and (within is None or node in within):
            nodes.add(node)
            left.extend(inputs_of(node))
    return nodes


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """Return what a node reads, in the graphs inside it too."""
    return [*(v for v in node.inputs if v is not None), *captured(node)]


def captured(node: ir.Node) -> list[ir.Value]:
    """Return the outer values that a node's subgraphs use, each once, in order of use."""
    values: dict[ir.Value, None] = {}
    for graph in subgraphs(node):
        values.update(dict.fromkeys(_outer_values(graph)))
    return list(values)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs among a node's attributes."""
    for attribute in node.attributes.data.values():
        if attribute.type == AttributeProto.GRAPH and attribute.value is not None:
            yield attribute.value


def graphs_in(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a graph and those inside it, at any depth, each before what is inside it."""
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from graphs_in(inner)


def nodes_in(node: ir.Node) -> Iterator[ir.Node]:
    """Yield a node and those inside it, at any depth, in order of execution."""
    yield node
    for graph in subgraphs(node):
        for inner in graph:
            yield from nodes_in(inner)


def remove_unused_nodes(graph: ir.Graph) -> None:
    """Remove the nodes of a sorted graph that no output of it needs, in place."""
    unused: list[ir.Node] = []
    for node in reversed(graph):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            for inside in nodes_in(node):
                for index in range(len(inside.inputs)):
                    inside.replace_input_with(index, None)  # for reading keeps a value
            unused.append(node)
    graph.remove(unused)  # at once: each removal goes through all outputs of the graph


def _outer_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the values that a graph uses and does not define."""
    defined: set[ir.Value] = {*graph.inputs, *graph.initializers.values()}
    used: list[ir.Value] = []
    for node in graph:
        defined.update(node.outputs)
        used.extend(inputs_of(node))
    used.extend(graph.outputs)
    return [v for v in used if v not in defined]
