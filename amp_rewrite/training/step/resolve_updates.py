"""Ifs of updates without the If: where it is known which batch comes, or both branches pay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traverse import nodes_in
from amp_rewrite.training.builder.known import take_place
from amp_rewrite.training.step.cut_step import values_by_name

_THEN, _ELSE = "then_branch", "else_branch"


def resolve_updates(model: ir.Model, boundary: str, *, last: bool) -> None:
    """Leave what one batch of an update computes, in place; what another one needs is unused then.

    So shards sum no gradients before the last batch, for no If or Where asks for them.

    Args:
        model: A step with everything that can be fetched.
        boundary: The value that tells whether a batch is the last one.
        last: What it tells.
    """
    graph = model.graph
    decided = {values_by_name(graph)[boundary]: last}
    for node in list(graph):
        truths = [decided.get(v) for v in node.inputs if v is not None]
        if node.domain or all(known_truth is None for known_truth in truths):
            continue
        if node.op_type == "Not":
            decided[node.outputs[0]] = not truths[0]
        elif node.op_type == "Or" and True in truths:
            decided[node.outputs[0]] = True
        elif node.op_type == "And" and False in truths:
            decided[node.outputs[0]] = False
        elif node.op_type == "Where" and truths[0] is not None:
            chosen = node.inputs[1 if truths[0] else 2]
            assert chosen is not None, "Where has three inputs"
            _replace(graph, node, [chosen])
        elif node.op_type == "If":
            _replace(graph, node, _taken_out(graph, node, _THEN if truths[0] else _ELSE))
    for value, truth in decided.items():
        node = value.producer()
        assert node is not None, "a decision is computed"
        _replace(graph, node, [_constant(graph, node, truth)])


def _taken_out(graph: ir.Graph, node: ir.Node, name: str) -> list[ir.Value]:
    """Move the nodes of a branch of an If in front of it; return what the branch gave out."""
    branch = node.attributes[name].as_graph()
    outputs = list(branch.outputs)
    branch.outputs.clear()
    nodes = list(branch)
    branch.remove(nodes)
    graph.insert_before(node, nodes)
    return outputs


def _constant(graph: ir.Graph, node: ir.Node, truth: bool) -> ir.Value:
    constant = ir.node("Constant", [], {"value": ir.tensor(np.array(truth))})
    graph.insert_before(node, constant)
    constant.outputs[0].name = f"{node.outputs[0].name}:decided"
    constant.outputs[0].type, constant.outputs[0].shape = node.outputs[0].type, ir.Shape(())
    return constant.outputs[0]


def _replace(graph: ir.Graph, node: ir.Node, values: list[ir.Value]) -> None:
    """Put values in the place of a node's outputs, whose names are kept."""
    origin = dict(node.metadata_props)
    for inside in nodes_in(node):
        for index in range(len(inside.inputs)):
            inside.replace_input_with(index, None)  # for reading keeps a value
    for old, value in zip(node.outputs, values, strict=True):
        copy = ir.node("Identity", [value], metadata_props=origin)
        graph.insert_before(node, copy)
        take_place(copy.outputs[0], old)
    graph.remove(node, safe=True)
