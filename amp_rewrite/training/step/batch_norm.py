"""BatchNormalization in training mode as functions, for devices that lack it, and put back."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import input_of
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.training.optimizers.update_rule import DOMAIN, OLDEST_IR

_OP, _NAME = "BatchNormalization", "TrainingBatchNormalization"
"""The operator, and what the names of its functions begin with."""
_ATTRIBUTES = {"epsilon": 1e-5, "momentum": 0.9}
"""The operator's numbers, and its defaults."""


def spell_out_batch_norms(model: ir.Model) -> None:
    """Turn every BatchNormalization in training mode into a call of a function, in place.

    ONNX Runtime's CUDA provider refuses to create its kernel ("Training mode does not support BN
    opset 14 (or higher) yet"). With X (N, C, ...), mean and variance over all axes but C:

        Y = (X - mean) / sqrt(var + epsilon) * scale + bias
        running_mean = input_mean * momentum + mean * (1 - momentum)
        running_var = input_var * momentum + var * (1 - momentum)

    as the operator's definition has it, var being the biased one. All is computed in float32 at
    least, and Y is cast to the type of X. One whose X has an unknown rank stays as it is. A call is
    a BatchNormalization in all but its name and domain, for `put_back_batch_norms`.
    """
    nodes = [n for n in model.graph if n.op_type == _OP and not n.domain]
    nodes = [n for n in nodes if n.attributes.get_int("training_mode", 0) == 1]
    if not nodes:
        return
    record_types(model)
    b = Builder(model)
    names = FreeNames(f.name for f in model.functions.values() if f.domain == DOMAIN)
    for node in nodes:
        if b.rank(input_of(node, 0)) is None:
            continue
        graph = ir.Graph([], [], nodes=[], opset_imports={"": b.opset})
        for i, value in enumerate(input_of(node, i) for i in range(5)):
            graph.inputs.append(ir.Value(name=f"input_{i}", type=value.type, shape=value.shape))
        graph.outputs.extend(_computed(b.body(graph), node)[: len(node.outputs)])
        node.op_type, node.domain = names.take(_NAME), DOMAIN
        attributes = [ir.Attr(name, a.type, None) for name, a in node.attributes.items()]
        function = ir.Function(DOMAIN, node.op_type, graph=graph, attributes=attributes)
        model.functions[function.identifier()] = function
        model.graph.opset_imports.setdefault(DOMAIN, 1)
        model.ir_version = max(model.ir_version, OLDEST_IR)


def put_back_batch_norms(model: ir.Model) -> None:
    """Put BatchNormalization in training mode back where it was spelled out, in place.

    Inference needs the node, whose running statistics it uses, and the CPU has a kernel for it.
    """
    for key in [k for k in model.functions if k[0] == DOMAIN and k[1].startswith(_NAME)]:
        del model.functions[key]
    for node in model.graph:
        if node.domain == DOMAIN and node.op_type.startswith(_NAME):
            node.op_type, node.domain = _OP, ""


def _computed(b: Builder, node: ir.Node) -> list[ir.Value]:
    """Return Y and the next running statistics, of the inputs of the builder's graph."""
    x, scale, bias, *before = b.graph.inputs
    rank = b.rank(x)
    assert rank is not None, "the caller has looked"
    epsilon, momentum = (node.attributes.get_float(*pair) for pair in _ATTRIBUTES.items())
    wide = max((ir.DataType.FLOAT, b.type_of(x)), key=lambda dtype: dtype.itemsize)
    axes = [axis for axis in range(rank) if axis != 1]
    channels = [1, -1] + [1] * (rank - 2)
    scale, bias = (b.reshape(b.cast(v, wide), channels) for v in (scale, bias))
    wide_x = b.cast(x, wide)
    mean = b.reduce_mean(wide_x, axes)
    centred = b.sub(wide_x, mean)
    variance = b.reduce_mean(b.square(centred), axes)
    factor = b.div(scale, b.sqrt(b.add(variance, epsilon)))
    results = [b.cast(b.add(b.mul(centred, factor), bias), b.type_of(x))]
    for old, now in zip(before, (mean, variance), strict=True):
        new = b.mul(b.cast(b.reshape(now, [-1]), b.type_of(old)), 1 - momentum)
        results.append(b.add(b.mul(old, momentum), new))
    return results
