"""How often the label is among the largest logits."""

from __future__ import annotations

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.loop.metrics.class_comparison import ClassComparison
from amp_rewrite.loop.metrics.metric import Array, ratio


class Accuracy(ClassComparison):
    """The share of labels that the k largest logits contain; ties go to the lower class."""

    def __init__(
        self,
        logits: str | None = None,
        labels: str | None = None,
        *,
        top_k: int = 1,
        ignore_index: int | None = None,
    ) -> None:
        """Say what to compare.

        Args:
            logits: (N, ..., C) or (N, C, ...); None is what the step says.
            labels: Class numbers (N, ...), or probabilities in the shape of the logits; None is
                what the step says.
            top_k: How many of the largest logits count.
            ignore_index: Labels of this number do not count; None is what the step says.

        Raises:
            OptionError: `top_k` is not a positive integer, or another argument is of another kind.
        """
        self._top = arguments.integer("top_k", top_k, low=1)
        name, word = "accuracy", "accuracy"
        if top_k != 1:
            name, word = f"top_{self._top}_accuracy", f"top-{self._top}"
        super().__init__(logits, labels, name, word=word, ignore_index=ignore_index)
        self._forget()

    def _forget(self) -> None:
        self._correct = self._answers = 0

    def _compare(self, predicted: Array, labels: Array) -> None:
        right = hits(*self.aligned(predicted, labels), self._top)
        self._correct += int(right.sum())
        self._answers += right.size

    def result(self) -> float:
        """Return the share, from 0 to 1."""
        return ratio(self._correct, self._answers)


def hits(logits: Array, labels: Array, top_k: int = 1) -> Array:
    """Return where the label is among the k largest logits: bool, one per label.

    Args:
        logits: (..., C).
        labels: Class numbers (...).
        top_k: How many logits count.
    """
    if top_k == 1:
        return logits.argmax(-1) == labels
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :top_k]
    return (order == labels[..., None]).any(-1)
