"""Mean absolute error."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.losses.operands import ValueOrName, of_difference


def mean_absolute_error(
    model: ir.Model, predictions: ValueOrName, labels: ValueOrName, *, reduction: str = "mean"
) -> GraphValue:
    """Add |predictions - labels|, averaged over the elements; its gradient at 0 is 0.

    Arguments, result and errors are those of `mean_squared_error`.
    """
    return of_difference(model, predictions, labels, reduction, lambda b, error: b.abs(error))
