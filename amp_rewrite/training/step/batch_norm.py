"""BatchNormalization in training mode, spelled out for devices that lack it, and put back."""

from __future__ import annotations

import json
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import input_of, maker, take_place
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.metadata_keys import BATCH_NORM_KEY
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
