"""How often the label is among the largest logits."""

from __future__ import annotations

import numpy as np

from amp_rewrite.errors import OptionError
from amp_rewrite.metrics.metric import Array, Comparison, ratio


class Accuracy(Comparison):
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
            ignore_index: Labels of this number do not count.

        Raises:
            OptionError: `top_k` is no positive integer.
        """
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "impossible top_k", found=repr(top_k), expected="an integer of at least 1"
            )
        super().__init__(logits, labels, "accuracy" if top_k == 1 else f"top_{top_k}_accuracy")
        self._top, self._ignored = top_k, ignore_index
        self._forget()

    def _forget(self) -> None:
        self._correct = self._answers = 0

    def _compare(self, predicted: Array, labels: Array) -> None:
        right = hits(predicted, labels, self._top)
        if self._ignored is not None and right.shape == labels.shape:
            right = right[labels != self._ignored]
        self._correct += int(right.sum())
        self._answers += right.size

    def result(self) -> float:
        """Return the share, from 0 to 1."""
        return ratio(self._correct, self._answers)


def hits(logits: Array, labels: Array, top_k: int = 1) -> Array:
    """Return where the label is among the k largest logits.

    Args:
        logits: (N, ..., C) or (N, C, ...).
        labels: Class numbers (N, ...), or probabilities in the shape of the logits, of which the
            largest is the label.
        top_k: How many logits count.

    Returns:
        bool, one per label.
    """
    classes, numbers = aligned(logits, labels)
    if top_k == 1:
        return classes.argmax(-1) == numbers
    order = np.argsort(-classes, axis=-1, kind="stable")[..., :top_k]
    return (order == numbers[..., None]).any(-1)


def aligned(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return logits with the classes last, and the class numbers of labels."""
    if labels.shape == logits.shape and np.issubdtype(labels.dtype, np.floating):
        return logits, labels.argmax(-1)
    return (logits if logits.shape[:-1] == labels.shape else np.moveaxis(logits, 1, -1)), labels
