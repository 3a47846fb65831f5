"""Softmax cross entropy from logits."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.known import differ
from amp_rewrite.errors import LossError
from amp_rewrite.graph.part import Part
from amp_rewrite.losses.operands import check_integer, check_reduction, named, operands
from amp_rewrite.training.training_graph import GraphValue

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def softmax_cross_entropy(
    model: ir.Model,
    logits: str | GraphValue,
    labels: str | GraphValue,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> GraphValue:
    """Add -log softmax(logits)[label], averaged over the labels.

    Computed by SoftmaxCrossEntropyLoss from the logits, which is stable for logits of any size.

    Args:
        model: What `amp_rewrite.load` returned.
        logits: Floating-point, (N, ..., C) with the classes along `axis`.
        labels: int32 or int64, the shape of the logits without `axis`; a name that the model does
            not have becomes an int64 input of that shape.
        axis: The axis of the classes.
        ignore_index: Elements with this label count neither in the sum nor in the mean.
        reduction: "mean", "sum" or "none", which keeps the shape of the labels.

    Returns:
        The loss, called "loss" if that name is free: shape (), at least float32, unless the
        reduction is "none".

    Raises:
        LossError: The labels are no integers or have another shape, the logits are not
            floating-point, or an option is impossible.
        UnknownValueError: The model has no value called `logits`.
    """
    check_reduction(reduction)
    axis = check_integer("axis", axis)
    ignored = None if ignore_index is None else check_integer("ignore_index", ignore_index)
    graph, scores, targets = operands(model, logits, labels, axis=axis)
    b = graph.scoped("loss", Part.LOSS)
    if b.type_of(targets) not in _INTEGERS:
        raise LossError(
            "labels must be integers: the index of the class",
            where=targets.name,
            found=b.type_of(targets).name.lower(),
            expected="int32 or int64",
        )
    _check_shape(b, scores, targets, axis)
    rank = b.rank(scores)
    if rank is not None and axis % rank != rank - 1:
        axis %= rank
        scores = b.transpose(scores, [d for d in range(rank) if d != axis] + [axis])
    if b.type_of(scores).itemsize < 4:
        scores = b.cast(scores, ir.DataType.FLOAT)
    rows, classes = targets, scores
    if rank != 2:
        classes = b.reshape(scores, b.concat([b.constant([-1]), b.dim(scores, -1)], 0))
        rows = b.reshape(targets, [-1])
    loss = b.op(
        "SoftmaxCrossEntropyLoss",
        classes,
        rows,
        reduction=reduction,
        ignore_index=ignored,
    )
    return named(graph, b.reshape_like(loss, targets) if reduction == "none" else loss)


def _check_shape(b: Builder, scores: ir.Value, targets: ir.Value, axis: int) -> None:
    """Refuse labels whose shape is known not to be that of the logits without the classes.

    Raises:
        LossError: The ranks or two static lengths differ.
    """
    whole, found = b.dims(scores), b.dims(targets)
    if whole is None or found is None:
        return
    expected = [n for k, n in enumerate(whole) if k != axis % len(whole)]
    if differ(expected, found):
        raise LossError(
            "labels must have the shape of the logits without the axis of the classes",
            where=targets.name,
            found=list(found),
            expected=f"{expected}, the classes being axis {axis} of {list(whole)}",
            remedy="reshape the labels, or say axis=1 where the classes are the second axis",
        )
