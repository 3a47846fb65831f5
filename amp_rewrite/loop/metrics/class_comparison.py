"""Predictions of classes, and labels of which some may not count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.loop.metrics.metric import Array, Comparison, Values
from amp_rewrite.training.step.step_info import IGNORED, LABELS, LOGITS, PREDICTIONS


class ClassComparison(Comparison):
    """A metric that compares the logits of classes with class numbers."""

    def __init__(
        self,
        logits: str | None,
        labels: str | None,
        name: str,
        *,
        word: str | None = None,
        ignore_index: int | None = None,
    ) -> None:
        """Keep the names, and which labels do not count.

        Args:
            logits: As for `Comparison`.
            labels: As for `Comparison`.
            name: As for `Comparison`.
            word: As for `Comparison`.
            ignore_index: Labels of this number do not count; None is what the step says of its
                labels.

        Raises:
            OptionError: A name is none, or `ignore_index` is not an integer.
        """
        super().__init__(logits, labels, name, word=word)
        self._given = ignored_number(ignore_index)
        self._ignored = self._given
        self._logits: str | None = None

    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the logits, and of the loss's if they are others; see `Metric`."""
        names = super().begin(targets)
        of_loss = targets if self.names[LABELS] == targets.get(LABELS) else {}
        self._ignored = of_loss.get(IGNORED) if self._given is None else self._given
        logits = of_loss.get(LOGITS)
        self._logits = None if logits in names else logits
        return names if self._logits is None else (*names, self._logits)

    def update(self, found: Values, feeds: Values) -> None:
        """Compare one batch; what predicts the labels of the loss is as large as its logits."""
        name = self.names[PREDICTIONS]
        if self._logits is not None and name not in feeds:
            shape, expected = np.shape(found[name]), np.shape(found[self._logits])
            if math.prod(shape) != math.prod(expected):
                raise self.misfit(
                    f"the shape {list(shape)}",
                    f"as many numbers as {self._logits!r} has in the shape {list(expected)}",
                )
        super().update(found, feeds)

    def aligned(self, predicted: Array, labels: Array) -> tuple[Array, Array]:
        """Return the logits of each label that counts, the classes last, and its class number.

        Args:
            predicted: (N, ..., C) or (N, C, ...).
            labels: Class numbers (N, ...), or probabilities in the shape of the logits, of which
                the largest is the label.

        Raises:
            OptionError: They are not such.
        """
        if not np.issubdtype(predicted.dtype, np.floating):
            raise self.misfit(f"predictions of {predicted.dtype}", "logits, floating-point")
        fitting = _classes_last(predicted, labels)
        if fitting is None:
            raise self.misfit(
                f"the shapes {list(predicted.shape)} and {list(labels.shape)}",
                "logits (N, ..., C) or (N, C, ...) of two or more classes and labels (N, ...)",
            )
        logits, numbers = fitting
        kept = self.counting(numbers)
        logits, numbers = logits[kept], numbers[kept]
        wrong = (numbers < 0) | (numbers >= logits.shape[-1])
        if wrong.any():
            raise self.misfit(
                f"the label {numbers[wrong][0]}",
                f"classes from 0 to {logits.shape[-1] - 1}, or ignore_index to leave it out",
            )
        return logits, numbers

    def counting(self, labels: Array) -> Array:
        """Return which labels count."""
        everything = np.ones(labels.shape, np.bool_)
        return everything if self._ignored is None else labels != self._ignored


def ignored_number(given: object) -> int | None:
    """Return an `ignore_index` as an int, or None.

    Raises:
        OptionError: It is not an integer.
    """
    return None if given is None else arguments.integer(IGNORED, given, low=-(2**63))


def _classes_last(logits: Array, labels: Array) -> tuple[Array, Array] | None:
    """Return logits with the classes last, and the class numbers of labels; None if neither fits.

    Where the classes could be the last axis or the second one, they are the last.
    """
    if labels.shape == logits.shape and np.issubdtype(labels.dtype, np.floating):
        last, numbers = logits, labels.argmax(-1) if labels.ndim and labels.size else labels
    elif logits.ndim and logits.shape[:-1] == labels.shape:
        last, numbers = logits, labels
    elif logits.ndim > 1 and (logits.shape[0], *logits.shape[2:]) == labels.shape:
        last, numbers = np.moveaxis(logits, 1, -1), labels
    else:
        return None
    return (last, numbers) if last.ndim > 1 and last.shape[-1] > 1 else None
