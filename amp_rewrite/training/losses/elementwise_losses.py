"""Losses element by element: binary cross entropy from logits, and those of a difference."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import LossError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.compared import Compared
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.losses.operands import (
    ValueOrName,
    check_reduction,
    check_same_shape,
    check_share,
    check_weights,
    named,
    of_difference,
    operands,
    reduced,
)


def sigmoid_cross_entropy(
    model: ir.Model,
    logits: str | GraphValue,
    labels: str | GraphValue,
    *,
    pos_weight: Any = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> GraphValue:
    """Add -w z log sigmoid(x) - (1 - z) log(1 - sigmoid(x)), averaged over the elements.

    Computed as softplus(x) - x z, whose gradient is sigmoid(x) - z everywhere, at 0 too, and with
    weights as w z softplus(-x) + (1 - z) softplus(x); kernels of Softplus do not overflow. `w` is
    what PyTorch's BCEWithLogitsLoss calls pos_weight
    (https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html).

    Args:
        model: What `amp_rewrite.load` returned.
        logits: x, floating-point.
        labels: z, between 0 and 1, in the shape of the logits and of any type; a name that the
            model does not have becomes an input of their type.
        pos_weight: w, a number of at least 0, or an array that broadcasts to the logits; above 1
            for rare positive labels. None is 1.
        label_smoothing: s in z (1 - s) + s / 2, 0 to 1.
        reduction: "mean", "sum" or "none", which keeps the shape.

    Returns:
        The loss, "loss" if that name is free: shape (), at least float32, if it is reduced.

    Raises:
        LossError: The logits are not floating-point, shapes differ, or an option is impossible.
        UnknownValueError: The model has no value called `logits`.
    """
    check_reduction(reduction)
    smoothing = check_share("label_smoothing", label_smoothing)
    weight = None if pos_weight is None else check_weights("pos_weight", pos_weight, None)
    graph, scores, targets = operands(model, logits, labels)
    b = graph.scoped("loss", Part.LOSS)
    check_same_shape(b, scores, targets)
    x = b.at_least_float32(scores)
    z = b.cast_like(targets, x)
    if smoothing:
        z = b.add(b.mul(z, 1 - smoothing), smoothing / 2)
    if weight is None:
        losses = b.sub(b.op("Softplus", x), b.mul(x, z))
    else:
        _check_broadcasts(b, x, weight)
        positive = b.mul(b.mul(z, b.constant(weight, b.type_of(x))), b.op("Softplus", b.neg(x)))
        losses = b.add(positive, b.mul(b.sub(1.0, z), b.op("Softplus", x)))
    return named(graph, reduced(b, losses, reduction), Compared(scores, targets))


def _check_broadcasts(b: Builder, x: ir.Value, weight: np.ndarray[Any, Any]) -> None:
    """Refuse weights that are known not to broadcast to the logits."""
    dims = b.dims(x)
    if dims is None:
        return
    pairs = zip(reversed(weight.shape), reversed(dims), strict=False)
    if weight.ndim > len(dims) or any(w != 1 and d is not None and w != d for w, d in pairs):
        raise LossError(
            "pos_weight does not broadcast to the logits",
            where=x.name,
            found=list(weight.shape),
            expected=f"a number, or a shape that ends as {list(dims)}",
        )


def mean_squared_error(
    model: ir.Model, predictions: ValueOrName, labels: ValueOrName, *, reduction: str = "mean"
) -> GraphValue:
    """Add (predictions - labels)^2, averaged over the elements.

    Args:
        model: What `amp_rewrite.load` returned.
        predictions: Floating-point.
        labels: The same shape, any type; a name that the model does not have becomes an input of
            the type of the predictions.
        reduction: "mean", "sum" or "none", which keeps the shape.

    Returns:
        The loss, "loss" if that name is free: shape (), at least float32, if it is reduced.

    Raises:
        LossError: The predictions are not floating-point, or shapes differ.
        UnknownValueError: The model has no value called `predictions`.
    """
    return of_difference(model, predictions, labels, reduction, lambda b, error: b.square(error))


def mean_absolute_error(
    model: ir.Model, predictions: ValueOrName, labels: ValueOrName, *, reduction: str = "mean"
) -> GraphValue:
    """Add |predictions - labels|, averaged over the elements; its gradient at 0 is 0.

    Arguments, result and errors are those of `mean_squared_error`.
    """
    return of_difference(model, predictions, labels, reduction, lambda b, error: b.abs(error))


def huber(
    model: ir.Model,
    predictions: ValueOrName,
    labels: ValueOrName,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
) -> GraphValue:
    """Add e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2), averaged over the elements.

    e is predictions - labels (Huber 1964, https://doi.org/10.1214/aoms/1177703732). Computed as
    a (|e| - a / 2) with a = min(|e|, delta), which squares no large number. Other arguments, result
    and errors are those of `mean_squared_error`; a delta that is not positive is a LossError.
    """
    expected, largest = "a number above 0", sys.float_info.max
    delta = arguments.number(
        "delta", delta, low=0, high=largest, above=True, expected=expected, error=LossError
    )

    def losses(b: Builder, error: ir.Value) -> ir.Value:
        magnitude = b.abs(error)
        low = b.minimum(magnitude, delta)
        return b.mul(low, b.sub(magnitude, b.mul(low, 0.5)))

    return of_difference(model, predictions, labels, reduction, losses)
