"""Kullback-Leibler divergence of a distribution from that of logits."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.part import Part
from amp_rewrite.training.graph.compared import Compared
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.losses.loss_options import check_integer, check_reduction
from amp_rewrite.training.losses.operands import (
    at_least_float32,
    check_same_shape,
    classes_last,
    named,
    operands,
    reduced,
)


def kl_divergence(
    model: ir.Model,
    logits: str | GraphValue,
    labels: str | GraphValue,
    *,
    axis: int = -1,
    reduction: str = "mean",
) -> GraphValue:
    """Add the sum of p (log p - log softmax(logits)) over the classes, averaged over distributions.

    What distillation minimizes: p is what a teacher says. Where p is 0 the term is 0. The gradient
    with respect to the logits is that of `softmax_cross_entropy` with soft labels; the loss is 0
    where the two agree.

    Args:
        model: What `amp_rewrite.load` returned.
        logits: Floating-point, with the classes along `axis`.
        labels: p, probabilities of at least 0 in the shape of the logits; a name that the model
            does not have becomes an input of their type.
        axis: The axis of the classes.
        reduction: "mean" (over all distributions, PyTorch's "batchmean" for rank 2), "sum", or
            "none", which keeps the shape without the classes.

    Returns:
        The loss, called "loss" if that name is free: shape (), at least float32, unless the
        reduction is "none".

    Raises:
        LossError: The logits are not floating-point, shapes differ, or there is no such axis.
        UnknownValueError: The model has no value called `logits`.
    """
    check_reduction(reduction)
    axis = check_integer("axis", axis)
    graph, scores, targets = operands(model, logits, labels, axis=axis)
    b = graph.scoped("loss", Part.LOSS)
    check_same_shape(b, scores, targets)
    wide = at_least_float32(b, classes_last(b, scores, axis))
    p = b.cast_like(classes_last(b, targets, axis), wide)
    # ln 1 instead of ln 0, so that neither the loss nor a gradient with respect to p is NaN.
    entropy = b.mul(p, b.log(b.where(b.greater(p, 0.0), p, 1.0)))
    cross = b.mul(p, b.op("LogSoftmax", wide, axis=-1))
    losses = b.reduce_sum(b.sub(entropy, cross), [-1], keepdims=False)
    return named(graph, reduced(b, losses, reduction), Compared(scores, targets))
