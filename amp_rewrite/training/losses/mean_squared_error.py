"""Mean squared error."""

from __future__ import annotations

import onnx_ir as ir

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
