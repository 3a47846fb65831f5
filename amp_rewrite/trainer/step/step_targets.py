"""What evaluation compares, as the loss of a step tells it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite.metrics.metric import DENOMINATOR, IGNORED, LABELS, LOGITS, PREDICTIONS
from amp_rewrite.training.compared import compared_by


def targets_of(loss: ir.Value) -> dict[str, Any] | None:
    """Return `StepInfo.targets`: what a loss compares; None if nobody knows.

    Labels that are not fed as they are have no name there.
    """
    compared = compared_by(loss)
    if compared is None:
        return None
    found: dict[str, Any] = {
        LOGITS if compared.of_classes else PREDICTIONS: str(compared.predictions.name)
    }
    if compared.labels.is_graph_input():
        found[LABELS] = str(compared.labels.name)
    if compared.ignore_index is not None:
        found[IGNORED] = compared.ignore_index
    if compared.denominator is not None:
        found[DENOMINATOR] = str(compared.denominator.name)
    return found
