"""Means and variances of batches, taken from BatchNormalization instead of computed again.

Its gradient begins with the mean and the variance of the batch, which the operator computes and
does not give: its outputs are the running ones. With a momentum of 0 these are the batch's, and the
running ones follow from them, a number for each channel.
"""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.part import Part, source_key, source_of
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.convolved_gradients import take_place

_MOMENTUM = 0.9
"""The operator's default."""

_OUTPUTS = 3
"""y, and the running mean and variance."""


def share_statistics(model: ir.Model) -> None:
    """Let gradients in float32 read what BatchNormalization computes, in place, in a step."""
    graph = model.graph
    norms = [node for node in graph if node.op_type == "BatchNormalization" and not node.domain]
    norms = [n for n in norms if n.attributes.get_int("training_mode", 0)]
    norms = [n for n in norms if len(n.outputs) == _OUTPUTS]
    if not norms:
        return
    record_types(model)
    by_source: dict[str, list[ir.Node]] = {}
    for node in graph:
        source = source_of(node)
        if source is not None:
            by_source.setdefault(source, []).append(node)
    b = Builder(model, scope="statistics", part=Part.GRADIENT)
    for node in norms:
        _share(b, node, by_source.get(source_key(node), []))
    if b.added:
        graph.sort()
        remove_unused_nodes(graph)


def _share(b: Builder, node: ir.Node, backward: list[ir.Node]) -> None:
    """Replace the mean and the variance that the nodes of a gradient compute of the node's x."""
    x = node.inputs[0]
    mean = _mean_of(x, backward)
    centred = next((n for n in backward if n.op_type == "Sub" and n.inputs[0] is x), None)
    if x is None or mean is None or centred is None or centred.inputs[1] is not mean:
        return
    both = (centred.outputs[0],) * 2
    squares = next((n for n in backward if n.op_type == "Mul" and n.inputs == both), None)
    variance = None if squares is None else _mean_of(squares.outputs[0], backward)
    if variance is None or x.dtype is not ir.DataType.FLOAT:
        return
    momentum = node.attributes.get_float("momentum", _MOMENTUM)
    node.attributes["momentum"] = ir.AttrFloat32("momentum", 0.0)
    weights, running = node.inputs[1:3], node.inputs[3:5]
    for index, old in enumerate((mean, variance)):
        weight, before, statistic = weights[index], running[index], node.outputs[1 + index]
        assert weight is not None, "the scale and the bias are there"
        assert before is not None, "the running statistics are there"
        # ONNX Runtime's kernel writes over what it is given, and adds it times its momentum.
        node.replace_input_with(3 + index, b.mul(weight, 0.0))
        share = ir.node("Mul", [statistic, b.constant(1 - momentum, ir.DataType.FLOAT)])
        take_place(b.add(b.mul(before, momentum), share.outputs[0]), statistic)
        share.replace_input_with(0, statistic)
        b.graph.append(share)
        ir.convenience.replace_all_uses_with(old, b.reshape_like(statistic, old))


def _mean_of(x: ir.Value | None, nodes: list[ir.Node]) -> ir.Value | None:
    found = [n.outputs[0] for n in nodes if n.op_type == "ReduceMean" and n.inputs[0] is x]
    return found[0] if len(found) == 1 else None
