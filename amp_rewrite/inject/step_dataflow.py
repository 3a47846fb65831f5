"""Who reads what in the main graph of a model; a node reads what its subgraphs capture too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.graph.traverse import inputs_of, nodes_in


class Dataflow:
    """The nodes of a main graph and the values between them, as they are now.

    Attributes:
        graph: The graph.
    """

    def __init__(self, graph: ir.Graph) -> None:
        """Read the graph."""
        self.graph = graph
        self._readers: dict[ir.Value, list[ir.Node]] = {}
        self._owner: dict[ir.Node, ir.Node] = {}
        for node in graph:
            for value in inputs_of(node):
                self._readers.setdefault(value, []).append(node)
            for inner in nodes_in(node):
                self._owner[inner] = node

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """Return the nodes of the main graph that read a value."""
        return self._readers.get(value, [])

    def owner(self, node: ir.Node) -> ir.Node:
        """Return the node of the main graph that a node is or is inside of."""
        return self._owner.get(node, node)

    def after(self, values: Iterable[ir.Value], within: set[ir.Node] | None = None) -> set[ir.Node]:
        """Return the nodes that depend on any of the values.

        Args:
            values: Where to begin.
            within: Only nodes of this set are entered; None is all.
        """
        found: set[ir.Node] = set()
        left = deque(values)
        while left:
            for node in self.readers(left.popleft()):
                if node not in found and (within is None or node in within):
                    found.add(node)
                    left.extend(node.outputs)
        return found

    def uses(self, value: ir.Value) -> list[tuple[ir.Node, int, ir.Node]]:
        """Return (node, input, node of the main graph around it) for each use by a node."""
        return [(use.node, use.idx, self.owner(use.node)) for use in value.uses()]
