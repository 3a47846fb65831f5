"""Means and variances of batches, taken from BatchNormalization instead of computed again.

Its gradient begins with the mean and the variance of the batch, which the operator computes and
does not give: its outputs are the running ones. With a momentum of 0 these are the batch's, and the
running ones follow from them, a number for each channel.
"""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.replace import take_place
from amp_rewrite.training.graph.prepare import record_types

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
    b = Builder(model, scope="statistics", part=Part.GRADIENT)
    for node in norms:
        _share(b, node)
    if b.added:
        graph.sort()
        remove_unused_nodes(graph)


def _share(b: Builder, node: ir.Node) -> None:
    """Replace the mean and the variance of the node's x that a gradient computes."""
    x, channels = node.inputs[0], node.outputs[1].shape
    if x is None or channels is None or x.dtype is not ir.DataType.FLOAT:
        return
    mean = _mean_of(x, channels[0])
    users = [use.node for use in x.uses()]
    centred = next((n for n in users if n.op_type == "Sub" and n.inputs == (x, mean)), None)
    if mean is None or centred is None:
        return
    difference = centred.outputs[0]
    users = [use.node for use in difference.uses()]
    both = (difference, difference)
    square = next((n for n in users if n.op_type == "Mul" and n.inputs == both), None)
    variance = None if square is None else _mean_of(square.outputs[0], channels[0])
    if variance is None:
        return
    momentum = node.attributes.get_float("momentum", _MOMENTUM)
    node.attributes["momentum"] = ir.AttrFloat32("momentum", 0.0)
    zero = b.constant(0.0, ir.DataType.FLOAT)
    for index, old in enumerate((mean, variance)):
        before, statistic = node.inputs[3 + index], node.outputs[1 + index]
        assert before is not None, "the running statistics are there"
        # ONNX Runtime's kernel writes over what it is given, and adds it times its momentum: what
        # nobody else reads, zeros of this node alone, also where infinity has come in.
        node.replace_input_with(3 + index, b.op("Clip", before, zero, zero))
        share = ir.node("Mul", [statistic, b.constant(1 - momentum, ir.DataType.FLOAT)])
        take_place(b.add(b.mul(before, momentum), share.outputs[0]), statistic)
        share.replace_input_with(0, statistic)
        b.graph.append(share)
        ir.convenience.replace_all_uses_with(old, b.reshape_like(statistic, old))


def _mean_of(x: ir.Value, channels: int | ir.SymbolicDim) -> ir.Value | None:
    """Return the mean over all axes but the channels' if one node computes it."""
    nodes = [use.node for use in x.uses() if use.node.op_type == "ReduceMean" and use.idx == 0]
    means = [n.outputs[0] for n in nodes if _is_of_channels(n.outputs[0].shape, channels)]
    return means[0] if len(means) == 1 and not means[0].is_graph_output() else None


def _is_of_channels(shape: ir.Shape | None, channels: int | ir.SymbolicDim) -> bool:
    """Tell whether a mean's shape is (1, C, 1, ...)."""
    dims = list(shape or ())
    return len(dims) > 1 and dims[1] == channels and all(d == 1 for d in (dims[0], *dims[2:]))
