"""Binary cross entropy from logits."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.part import Part
from amp_rewrite.losses.operands import check_reduction, check_same_shape, named, operands, reduced
from amp_rewrite.training.training_graph import GraphValue


def sigmoid_cross_entropy(
    model: ir.Model,
    logits: str | GraphValue,
    labels: str | GraphValue,
    *,
    reduction: str = "mean",
) -> GraphValue:
    """Add -z log sigmoid(x) - (1 - z) log(1 - sigmoid(x)), averaged over the elements.

    Computed as softplus(x) - x z, whose gradient is sigmoid(x) - z everywhere, at 0 too; kernels
    of Softplus do not overflow.

    Args:
        model: What `amp_rewrite.load` returned.
        logits: x, floating-point.
        labels: z, between 0 and 1, in the shape of the logits and of any type; a name that the
            model does not have becomes an input of their type.
        reduction: "mean", "sum" or "none", which keeps the shape.

    Returns:
        The loss, called "loss" if that name is free: shape (), at least float32, unless the
        reduction is "none".

    Raises:
        LossError: The logits are not floating-point, or shapes differ.
        UnknownValueError: The model has no value called `logits`.
    """
    check_reduction(reduction)
    graph, x, z = operands(model, logits, labels)
    b = graph.scoped("loss", Part.LOSS)
    check_same_shape(b, x, z)
    losses = b.sub(b.op("Softplus", x), b.mul(x, b.cast_like(z, x)))
    return named(graph, reduced(b, losses, reduction))
