"""A copy of a graph inside a node, in which a backward pass computes it again."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.training.builder.builder import Builder


def repeated(b: Builder, graph: ir.Graph) -> ir.Graph:
    """Return a copy of a subgraph that reads the same outer values, and has names of its own.

    Raises:
        GradientError: It draws random numbers, of which the copy would draw others.
    """
    _check_repeatable(b, graph)
    copied = graph.clone(allow_outer_scope_values=True)
    _rename(b, copied)
    return copied


def _check_repeatable(b: Builder, graph: ir.Graph) -> None:
    """Refuse random numbers."""
    for node in graph:
        mode = node.inputs[2] if operator(node) == "Dropout" and len(node.inputs) > 2 else None
        drops = mode is not None and b.ints(mode) != [0]
        if drops or has(node, Trait.RANDOM):
            raise GradientError(
                "random numbers inside an If or a loop have no gradient",
                where=place(node),
                remedy="move the operator out of it, or turn its training mode off",
            )
        for inner in subgraphs(node):
            _check_repeatable(b, inner)


def _rename(b: Builder, graph: ir.Graph) -> None:
    """Give everything in a copied graph a name of its own."""
    for value in (*graph.inputs, *graph.initializers.values()):
        value.name = b.free_name(value.name or "value")
    for node in graph:
        node.name = b.free_name(node.name or node.op_type)
        for value in node.outputs:
            value.name = b.free_name(value.name) if value.name else value.name
        for inner in subgraphs(node):
            _rename(b, inner)
