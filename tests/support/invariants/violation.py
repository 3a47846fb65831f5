"""What an invariant reports, and the walk over every graph of a model that invariants share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.added import SUFFIX
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.read_object import infer_types


class Violation(NamedTuple):
    """One place where a rewritten model breaks an invariant.

    Attributes:
        invariant: The invariant's name in `INVARIANTS`.
        where: The node, value or other place concerned, with its scope.
        message: What is wrong there.
    """

    invariant: str
    where: str
    message: str

    def __str__(self) -> str:
        """Return the violation as one line."""
        return f"{self.invariant}: {self.where}: {self.message}"


AnyGraph = ir.Graph | ir.Function


def known_types(model: ir.Model) -> Types:
    """Return the types of a model's values; none of one whose structure is not valid."""
    try:
        return infer_types(model)
    except GraphError:
        return {}


def named_subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """Yield the graphs among a node's attributes, as "body" or, one of several, "bodies[0]"."""
    for name, attribute in node.attributes.items():
        if attribute.type == ir.AttributeType.GRAPH and attribute.value is not None:
            yield name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS and attribute.value is not None:
            for index, graph in enumerate(attribute.as_graphs()):
                yield f"{name}[{index}]", graph


def is_added(node: ir.Node | None) -> bool:
    """Tell whether the pass added a node."""
    return node is not None and node.name is not None and node.name.endswith(SUFFIX)


def is_added_cast(node: ir.Node | None) -> bool:
    """Tell whether a node is a Cast that the pass added."""
    return node is not None and node.op_type == "Cast" and node.domain == "" and is_added(node)


def place(scope: str, name: str | None) -> str:
    """Return where a node or value is: its scope's path and its name."""
    return f"{scope}/{name or '(unnamed)'}" if scope else name or "(unnamed)"


def scope_of(scope: str, node: ir.Node, attribute: str) -> str:
    """Return the path of a subgraph, for example `loop.body/cond.then_branch`."""
    return place(scope, f"{node.name or node.op_type}.{attribute}")


def _graphs_inside(scope: str, graph: AnyGraph) -> Iterator[tuple[str, AnyGraph]]:
    yield scope, graph
    for node in graph:
        for attribute, subgraph in named_subgraphs(node):
            yield from _graphs_inside(scope_of(scope, node, attribute), subgraph)


def graphs(model: ir.Model) -> Iterator[tuple[str, AnyGraph]]:
    """Yield every graph with its scope: the main one, subgraphs at any depth, functions."""
    yield from _graphs_inside("", model.graph)
    for function in model.functions.values():
        yield from _graphs_inside(f"function {function.domain}::{function.name}", function)
