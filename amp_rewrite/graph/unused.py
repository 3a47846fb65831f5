"""Remove nodes that nothing needs."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.traverse import subgraphs


def remove_unused_nodes(graph: ir.Graph) -> None:
    """Remove the nodes of a graph that no output of it needs, in place.

    What only the graphs inside such a node read goes too. Initializers and inputs stay.

    Args:
        graph: Sorted.
    """
    for node in reversed(graph):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            _detach(node)
            graph.remove(node, safe=True)


def _detach(node: ir.Node) -> None:
    """Let the graphs inside a node read nothing, for reading keeps a value."""
    for graph in subgraphs(node):
        for inner in graph:
            _detach(inner)
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)
