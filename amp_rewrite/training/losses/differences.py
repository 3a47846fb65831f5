"""Losses of a difference, element by element: squared, absolute, and Huber's between them."""

from __future__ import annotations

import sys

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import LossError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.losses.operands import ValueOrName, of_difference


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
        The loss, called "loss" if that name is free: shape (), at least float32, unless the
        reduction is "none".

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
    a (|e| - a / 2) with a = min(|e|, delta), which squares nothing that is large.

    Args:
        model: What `amp_rewrite.load` returned.
        predictions: Floating-point.
        labels: The same shape, any type; a name that the model does not have becomes an input of
            the type of the predictions.
        delta: From which error on the loss grows in proportion to it; above 0.
        reduction: "mean", "sum" or "none", which keeps the shape.

    Returns:
        The loss, called "loss" if that name is free: shape (), at least float32, unless the
        reduction is "none".

    Raises:
        LossError: The predictions are not floating-point, shapes differ, or delta is not positive.
        UnknownValueError: The model has no value called `predictions`.
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
