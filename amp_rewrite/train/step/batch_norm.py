"""BatchNormalization in training mode, spelled out for devices that lack it."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.training.prepare import record_types

_SCOPE = "batch_norm"
_EPSILON, _MOMENTUM = 1e-5, 0.9
"""The operator's defaults."""


def spell_out_batch_norms(model: ir.Model) -> None:
    """Replace every BatchNormalization in training mode by simpler operators, in place.

    ONNX Runtime's CUDA provider refuses to create its kernel ("Training mode does not support BN
    opset 14 (or higher) yet"). With X (N, C, ...), mean and variance over all axes but C:

        Y = (X - mean) / sqrt(var + epsilon) * scale + bias
        running_mean = input_mean * momentum + mean * (1 - momentum)
        running_var = input_var * momentum + var * (1 - momentum)

    as the operator's definition has it, var being the biased one. All is computed in float32 at
    least, and Y is cast to the type of X.
    """
    nodes = [node for node in model.graph if _trains(node)]
    if not nodes:
        return
    record_types(model)
    b = Builder(model, scope=_SCOPE)
    for node in nodes:
        before = len(b.added)
        _replace(b, node)
        for added in b.added[before:]:
            added.metadata_props.clear()
            added.metadata_props.update(node.metadata_props)
    model.graph.sort()


def _trains(node: ir.Node) -> bool:
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    return node.attributes.get_int("training_mode", 0) == 1


def _replace(b: Builder, node: ir.Node) -> None:
    x, scale, bias, mean_before, var_before = node.inputs
    assert x is not None and scale is not None and bias is not None, "inputs are not optional"  # noqa: PT018
    assert mean_before is not None and var_before is not None, "inputs are not optional"  # noqa: PT018
    rank = b.rank(x)
    assert rank is not None, "types and shapes are recorded"
    wide = max((ir.DataType.FLOAT, b.type_of(x)), key=lambda dtype: dtype.itemsize)
    axes = [axis for axis in range(rank) if axis != 1]
    channels = [1, -1] + [1] * (rank - 2)
    given = b.cast(x, wide)
    mean = b.reduce_mean(given, axes)
    centred = b.sub(given, mean)
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
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        name, old.name = str(old.name), f"{old.name}:replaced"
        new.name, new.type, new.shape = name, old.type or new.type, old.shape or new.shape
    b.graph.remove(node, safe=True)


def _over(b: Builder, value: ir.Value, channels: list[int], dtype: ir.DataType) -> ir.Value:
    """Return one number per channel in a shape that broadcasts over the others."""
    return b.reshape(b.cast(value, dtype), channels)
