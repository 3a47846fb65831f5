"""Softmax cross entropy, from logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import LossError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import differ
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.compared import Compared
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.losses.operands import (
    check_integer,
    check_reduction,
    check_same_shape,
    check_share,
    check_weights,
    classes_last,
    named,
    operands,
    reduced,
    share_of_classes,
    weighted_mean,
)

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
Array = np.ndarray[Any, Any]


def softmax_cross_entropy(
    model: ir.Model,
    logits: str | GraphValue,
    labels: str | GraphValue,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    class_weights: Any = None,
    label_smoothing: float = 0.0,
    soft_labels: bool = False,
    reduction: str = "mean",
) -> GraphValue:
    """Add -log softmax(logits)[label], averaged over the labels.

    SoftmaxCrossEntropyLoss computes it from the logits, of any size. With weights w, smoothing s
    and C classes the loss of one label t is

        -(1 - s) w[t] log softmax(logits)[t] - s / C sum over c of w[c] log softmax(logits)[c]

    and the mean divides the sum by that of w[t], as in PyTorch
    (https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html); it is 0 if all
    labels are ignored.

    Args:
        model: What `amp_rewrite.load` returned.
        logits: Floating-point, (N, ..., C) with the classes along `axis`.
        labels: int32 or int64, the shape of the logits without `axis`; a name that the model does
            not have becomes an int64 input of that shape. With `soft_labels`, probabilities of the
            classes in the shape of the logits.
        axis: The axis of the classes.
        ignore_index: Elements with this label count neither in the sum nor in the mean.
        class_weights: A weight for each class, C numbers of at least 0; None is 1 for all.
        label_smoothing: The share of each label that is spread over all classes, 0 to 1.
        soft_labels: Whether labels are probabilities p; each loss is then
            -sum over c of w[c] p[c] log softmax(logits)[c], and the mean is over the labels.
        reduction: "mean", "sum" or "none", which keeps the shape of the labels.

    Returns:
        The loss, "loss" if that name is free: shape (), at least float32, if it is reduced.

    Raises:
        LossError: A type, a shape or an option is impossible.
        UnknownValueError: The model has no value called `logits`.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> loss.name
        'loss'
        >>> train_op = amp.optimizers.Adam(0.001).minimize(loss)
    """
    check_reduction(reduction)
    axis = check_integer("axis", axis)
    options = _Options(
        None if ignore_index is None else check_integer("ignore_index", ignore_index),
        None if class_weights is None else check_weights("class_weights", class_weights),
        check_share("label_smoothing", label_smoothing),
        reduction,
    )
    if arguments.switch("soft_labels", soft_labels, error=LossError) and ignore_index is not None:
        raise LossError(
            "probabilities have no class to ignore",
            found=f"ignore_index={ignore_index} with soft_labels",
            remedy="make the probabilities of ignored labels 0",
        )
    graph, scores, targets = operands(model, logits, labels, axis=axis, like_logits=soft_labels)
    b = graph.scoped("loss", Part.LOSS)
    if soft_labels:
        check_same_shape(b, scores, targets)
    else:
        _check_classes(b, scores, targets, axis)
    _check_number_of_weights(b, scores, axis, options.weights)
    wide = b.at_least_float32(classes_last(b, scores, axis))
    denominator = None
    if soft_labels:
        probabilities = b.cast_like(classes_last(b, targets, axis), wide)
        loss = _of_probabilities(b, wide, probabilities, options)
    else:
        loss, denominator = _of_classes(b, wide, targets, options)
    ignored = options.ignored
    compared = Compared(scores, targets, True, ignored, denominator)
    return named(graph, loss, compared)


@dataclass(frozen=True)
class _Options:
    ignored: int | None
    weights: Array | None
    smoothing: float
    reduction: str


def _of_classes(
    b: Builder, scores: ir.Value, targets: ir.Value, options: _Options
) -> tuple[ir.Value, ir.Value | None]:
    """Return the loss of class numbers (the last axis of the scores), and its denominator."""
    labels, classes, reduction = targets, scores, options.reduction
    if b.rank(scores) != 2:
        classes = b.reshape(scores, b.concat([b.constant([-1]), b.dim(scores, -1)], 0))
        labels = b.reshape(targets, [-1])
    if options.ignored is None and options.weights is None and not options.smoothing:
        loss = b.op("SoftmaxCrossEntropyLoss", classes, labels, reduction=reduction)
        return (b.reshape_like(loss, targets) if reduction == "none" else loss), None
    ignored, smoothing = options.ignored, options.smoothing
    weights = None if options.weights is None else b.constant(options.weights, b.type_of(classes))
    attributes: dict[str, Any] = {"reduction": "none", "ignore_index": ignored, "outputs": 2}
    losses, log_prob = b.op("SoftmaxCrossEntropyLoss", classes, labels, weights, **attributes)
    kept = None if ignored is None else b.logical_not(b.equal(labels, ignored))
    if smoothing:
        spread = log_prob if weights is None else b.mul(log_prob, weights)
        spread = b.reduce_sum(spread, [1], keepdims=False)
        spread = b.mul(spread, share_of_classes(b, classes, -smoothing))
        spread = spread if kept is None else b.where(kept, spread, 0.0)
        losses = b.add(b.mul(losses, 1 - smoothing), spread)
    if reduction == "none":
        return b.reshape_like(losses, targets), None
    if reduction == "sum":
        return reduced(b, losses, reduction), None
    counts = None if kept is None else b.cast_like(kept, classes)
    if weights is not None:
        counts = b.gather(weights, labels if kept is None else b.where(kept, labels, 0))
        counts = counts if kept is None else b.where(kept, counts, 0.0)
    if counts is None:
        return reduced(b, losses, reduction), None
    total = b.reduce_sum(counts, None, keepdims=False)
    return weighted_mean(b, losses, total), total


def _of_probabilities(
    b: Builder, scores: ir.Value, probabilities: ir.Value, options: _Options
) -> ir.Value:
    """Return the loss of soft labels; the classes are the last axis of both."""
    if options.smoothing:
        share = share_of_classes(b, scores, options.smoothing)
        probabilities = b.add(b.mul(probabilities, 1 - options.smoothing), share)
    if options.weights is not None:
        probabilities = b.mul(probabilities, b.constant(options.weights, b.type_of(scores)))
    log_prob = b.op("LogSoftmax", scores, axis=-1)
    losses = b.neg(b.reduce_sum(b.mul(probabilities, log_prob), [-1], keepdims=False))
    return reduced(b, losses, options.reduction)


def _check_classes(b: Builder, scores: ir.Value, targets: ir.Value, axis: int) -> None:
    """Refuse labels that are no class numbers in the shape of the logits without `axis`."""
    if b.type_of(targets) not in _INTEGERS:
        raise LossError(
            "labels must be integers: the index of the class",
            where=targets.name,
            found=b.type_of(targets).name.lower(),
            expected="int32 or int64",
            remedy="for probabilities of the classes say soft_labels=True",
        )
    whole, lengths = b.dims(scores), b.dims(targets)
    if whole is None or lengths is None:
        return
    expected = [n for k, n in enumerate(whole) if k != axis % len(whole)]
    if differ(expected, lengths):
        raise LossError(
            "labels must have the shape of the logits without the axis of the classes",
            where=targets.name,
            found=list(lengths),
            expected=f"{expected}, the classes being axis {axis} of {list(whole)}",
            remedy="reshape the labels, or say axis=1 where the classes are the second axis",
        )


def _check_number_of_weights(
    b: Builder, scores: ir.Value, axis: int, weights: Array | None
) -> None:
    """Refuse weights that are not one for each class, if the number of classes is known."""
    whole = b.dims(scores)
    classes = None if whole is None else whole[axis]
    if weights is not None and classes is not None and len(weights) != classes:
        raise LossError(
            "class_weights must have one weight for each class",
            where=scores.name,
            found=len(weights),
            expected=classes,
        )
