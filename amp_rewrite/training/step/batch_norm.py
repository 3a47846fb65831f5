"""BatchNormalization in training mode, spelled out for devices that lack it, and put back.

The gradient begins with the mean and the variance of the batch, which the operator computes and
does not give: its outputs are the running ones. With a momentum of 0 these are the batch's, and the
running ones follow from them, a number for each channel: `share_statistics`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import input_of, maker, take_place
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.metadata_keys import BATCH_NORM_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.step.cut_step import remove_unused, values_by_name

_SCOPE = "batch_norm"
_EPSILON, _MOMENTUM = 1e-5, 0.9
"""The operator's defaults."""


class _Call(NamedTuple):
    """A BatchNormalization in training mode, by the names of its values."""

    name: str
    inputs: list[str]
    outputs: list[str]
    epsilon: float
    momentum: float


def spell_out_batch_norms(model: ir.Model) -> None:
    """Replace every BatchNormalization in training mode by simpler operators, in place.

    ONNX Runtime's CUDA provider refuses to create its kernel ("Training mode does not support BN
    opset 14 (or higher) yet"). With X (N, C, ...), mean and variance over all axes but C:

        Y = (X - mean) / sqrt(var + epsilon) * scale + bias
        running_mean = input_mean * momentum + mean * (1 - momentum)
        running_var = input_var * momentum + var * (1 - momentum)

    as the operator's definition has it, var being the biased one. All is computed in float32 at
    least, and Y is cast to the type of X. One whose X has an unknown rank stays as it is. The node
    that computes Y remembers what it stands for, for `put_back_batch_norms`.
    """
    nodes = [node for node in model.graph if _trains(node)]
    if not nodes:
        return
    record_types(model)
    b = Builder(model, scope=_SCOPE)
    for node in nodes:
        x = node.inputs[0]
        if x is None or b.rank(x) is None:
            continue
        before, call = len(b.added), _call(node)
        y = _replace(b, node)
        for added in b.added[before:]:
            added.metadata_props.clear()
            added.metadata_props.update(node.metadata_props)
        maker(y).metadata_props[BATCH_NORM_KEY] = json.dumps(call)
    model.graph.sort()


def put_back_batch_norms(model: ir.Model) -> None:
    """Put BatchNormalization in training mode back where it was spelled out, in place.

    Inference needs the node, whose running statistics it uses, and the CPU has a kernel for it.

    Raises:
        StepError: The step was changed, so that it cannot be told what was there.
    """
    graph = model.graph
    notes = [(node, node.metadata_props.pop(BATCH_NORM_KEY, None)) for node in graph]
    marked = [(node, text) for node, text in notes if text is not None]
    if not marked:
        return
    values = values_by_name(graph)
    for node, text in marked:
        try:
            call = _Call(*json.loads(text))
            new = _batch_norm(call, [values[name] for name in call.inputs])
            olds = [values[call.outputs[0]], *(values.get(name) for name in call.outputs[1:])]
        except (ValueError, TypeError, KeyError) as error:
            raise StepError(
                "a BatchNormalization of the step cannot be put back",
                where=node.name or node.op_type,
                found=f"{type(error).__name__}: {error}",
                remedy="build the step again",
            ) from error
        new.metadata_props.update(node.metadata_props)
        graph.append(new)
        for old, output in zip(olds, new.outputs, strict=True):
            if old is not None:  # a running statistic that nothing needed was cut away
                take_place(output, old)
                values[str(output.name)] = output  # for a BatchNormalization that reads this one
    graph.sort()
    remove_unused(graph)


def _batch_norm(call: _Call, inputs: list[ir.Value]) -> ir.Node:
    attributes = {"epsilon": call.epsilon, "momentum": call.momentum, "training_mode": 1}
    converted = ir.convenience.convert_attributes(attributes)
    count = len(call.outputs)
    return ir.Node("", "BatchNormalization", inputs, converted, name=call.name, num_outputs=count)


def _call(node: ir.Node) -> _Call:
    """Return what a node is."""
    return _Call(
        node.name or "",
        [str(value.name) for value in node.inputs if value is not None],
        [value.name or "" for value in node.outputs],
        node.attributes.get_float("epsilon", _EPSILON),
        node.attributes.get_float("momentum", _MOMENTUM),
    )


def _trains(node: ir.Node) -> bool:
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    return node.attributes.get_int("training_mode", 0) == 1


def _replace(b: Builder, node: ir.Node) -> ir.Value:
    """Spell a node out and return what is Y then."""
    x, scale, bias, mean_before, var_before = (input_of(node, index) for index in range(5))
    rank = b.rank(x)
    assert rank is not None, "types and shapes are recorded"
    wide = max((ir.DataType.FLOAT, b.type_of(x)), key=lambda dtype: dtype.itemsize)
    axes = [axis for axis in range(rank) if axis != 1]
    channels = [1, -1] + [1] * (rank - 2)
    wide_x = b.cast(x, wide)
    mean = b.reduce_mean(wide_x, axes)
    centred = b.sub(wide_x, mean)
    variance = b.reduce_mean(b.square(centred), axes)
    epsilon = node.attributes.get_float("epsilon", _EPSILON)
    factor = b.div(_over(b, scale, channels, wide), b.sqrt(b.add(variance, epsilon)))
    y = b.add(b.mul(centred, factor), _over(b, bias, channels, wide))
    results = [b.cast(y, b.type_of(x))]
    momentum = node.attributes.get_float("momentum", _MOMENTUM)
    for before, now in ((mean_before, mean), (var_before, variance)):
        new = b.mul(b.cast(b.reshape(now, [-1]), b.type_of(before)), 1 - momentum)
        results.append(b.add(b.mul(before, momentum), new))
    for old, new in zip(node.outputs, results, strict=False):
        take_place(new, old)
    b.graph.remove(node, safe=True)
    return results[0]


def _over(b: Builder, value: ir.Value, channels: list[int], dtype: ir.DataType) -> ir.Value:
    """Return one number per channel in a shape that broadcasts over the others."""
    return b.reshape(b.cast(value, dtype), channels)


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
        before, statistic = input_of(node, 3 + index), node.outputs[1 + index]
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
