"""A note of a loss on its value: the values that it compares, and the divisor of its mean."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import COMPARED_KEY, SCALED_KEY
from amp_rewrite.graph.traits import Trait, has


@dataclass(frozen=True)
class Compared:
    """Predictions and labels that a loss is computed from.

    Attributes:
        of_classes: Whether the predictions are logits, and the labels number the largest ones.
        ignore_index: Labels of this number do not count, or None.
        denominator: The divisor of the sum of the losses, if labels do not count equally: the
            number of those that count, or the sum of their weights. Otherwise None.
    """

    predictions: ir.Value
    labels: ir.Value
    of_classes: bool = False
    ignore_index: int | None = None
    denominator: ir.Value | None = None


def note_compared(loss: ir.Value, compared: Compared) -> None:
    """Note on a loss what it compares."""
    loss.meta[COMPARED_KEY] = compared


def compared_by(loss: ir.Value) -> Compared | None:
    """Return what a loss, scaled or not, compares; None if nobody knows.

    A loss that was part of the model when it was loaded has no note; its operator tells.
    """
    loss = loss.meta.get(SCALED_KEY, loss)
    noted = loss.meta.get(COMPARED_KEY)
    return noted if isinstance(noted, Compared) else _of_operator(loss.producer())


def _of_operator(node: ir.Node | None) -> Compared | None:
    if node is None or not has(node, Trait.LOSS):
        return None
    scores, labels = node.inputs[:2]
    if scores is None or labels is None:
        return None
    ignored = node.attributes.get("ignore_index")
    return Compared(
        scores, labels, of_classes=True, ignore_index=None if ignored is None else ignored.as_int()
    )
