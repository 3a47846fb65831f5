"""A step that accumulates gradients, where it is known which batch of an update comes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traverse import nodes_in
from amp_rewrite.training.step.cut import values_by_name


def decide(model: ir.Model, boundary: str, *, last: bool) -> None:
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
        known = [decided.get(v) for v in node.inputs if v is not None]
        if node.domain or all(found is None for found in known):
            continue
        if node.op_type == "Not":
            decided[node.outputs[0]] = not known[0]
        elif node.op_type == "Or" and True in known:
            decided[node.outputs[0]] = True
        elif node.op_type == "And" and False in known:
            decided[node.outputs[0]] = False
        elif node.op_type == "Where" and known[0] is not None:
            chosen = node.inputs[1 if known[0] else 2]
            assert chosen is not None, "Where has three inputs"
            _replace(graph, node, [chosen])
        elif node.op_type == "If":
            _inline(graph, node, "then_branch" if known[0] else "else_branch")
    for value, truth in decided.items():
        node = value.producer()
        assert node is not None, "a decision is computed"
        _replace(graph, node, [_constant(graph, node, truth)])


def _inline(graph: ir.Graph, node: ir.Node, name: str) -> None:
    """Put what a branch of an If computes in its place."""
    branch = node.attributes[name].as_graph()
    outputs = list(branch.outputs)
    branch.outputs.clear()
    nodes = list(branch)
    branch.remove(nodes)
    graph.insert_before(node, nodes)
    for inside in nodes_in(node):
        for index in range(len(inside.inputs)):
            inside.replace_input_with(index, None)  # for reading keeps a value
    _replace(graph, node, outputs)


def _constant(graph: ir.Graph, node: ir.Node, truth: bool) -> ir.Value:
    constant = ir.node("Constant", [], {"value": ir.tensor(np.array(truth))})
    graph.insert_before(node, constant)
    constant.outputs[0].name = f"{node.outputs[0].name}:decided"
    constant.outputs[0].type, constant.outputs[0].shape = node.outputs[0].type, ir.Shape(())
    return constant.outputs[0]


def _replace(graph: ir.Graph, node: ir.Node, values: list[ir.Value]) -> None:
    """Put values in the place of a node's outputs, whose names are kept."""
    origin = dict(node.metadata_props)
    for old, value in zip(node.outputs, values, strict=True):
        copy = ir.node("Identity", [value], metadata_props=origin)
        new, name = copy.outputs[0], old.name
        new.type, new.shape = old.type, old.shape
        graph.insert_before(node, copy)
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name, new.name = f"{name}:undecided", name
    graph.remove(node, safe=True)
