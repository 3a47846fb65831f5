"""Ifs of updates without the If: where it is known which batch comes, or both branches pay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traverse import nodes_in, subgraphs
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


def choose_rounded_updates(graph: ir.Graph) -> None:
    """Compute both branches of updates that may be left out, if they round to bfloat16, in place.

    Inside an If shapes are free for OpenVINO 2026.4, and with free shapes its Cast to bfloat16 cuts
    off half of what it should round up: slots would shrink by .0014 in each step. Types are known.
    """
    for node in list(graph):
        for branch in subgraphs(node):
            choose_rounded_updates(branch)
        rounds = any(v.dtype is ir.DataType.BFLOAT16 for n in nodes_in(node) for v in n.outputs)
        if node.op_type != "If" or part_of(node) is not Part.LOSS_SCALE or not rounds:
            continue
        condition = node.inputs[0]
        pairs = zip(*(_taken_out(graph, node, branch) for branch in (_THEN, _ELSE)), strict=True)
        choices = [ir.node("Where", [condition, *pair]) for pair in pairs]
        for old, choice in zip(node.outputs, choices, strict=True):
            new = choice.outputs[0]
            new.name, new.type, new.shape = f"{old.name}:chosen", old.type, old.shape
        graph.insert_before(node, choices)
        _replace(graph, node, [choice.outputs[0] for choice in choices])


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
