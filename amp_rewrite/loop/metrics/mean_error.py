"""Mean errors of predictions."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from amp_rewrite.loop.metrics.metric import Array, Comparison, ratio
from amp_rewrite.training.step.step_info import LOGITS, PREDICTIONS


class _MeanError(Comparison):
    """The mean over all elements of a function of predictions - labels."""

    larger_is_better = False
    known_as = (PREDICTIONS, LOGITS)

    def _forget(self) -> None:
        self._sum, self._count = 0.0, 0

    def _compare(self, predicted: Array, labels: Array) -> None:
        if predicted.shape != labels.shape:
            raise self.misfit(
                f"the shapes {list(predicted.shape)} and {list(labels.shape)}",
                "values of one shape",
            )
        error = predicted.astype(np.float64) - labels
        self._sum += float(self._of(error).sum())
        self._count += error.size

    @abstractmethod
    def _of(self, error: Array) -> Array:
        """Return what the mean is taken of, element by element."""

    def result(self) -> float:
        """Return the mean."""
        return ratio(self._sum, self._count)


class MeanSquaredError(_MeanError):
    """The mean of (predictions - labels)^2 over all elements."""

    def __init__(self, predictions: str | None = None, labels: str | None = None) -> None:
        """Say what to compare; None is what the step says."""
        super().__init__(predictions, labels, "mean_squared_error")

    def _of(self, error: Array) -> Array:
        return error * error


class MeanAbsoluteError(_MeanError):
    """The mean of |predictions - labels| over all elements."""

    def __init__(self, predictions: str | None = None, labels: str | None = None) -> None:
        """Say what to compare; None is what the step says."""
        super().__init__(predictions, labels, "mean_absolute_error")

    def _of(self, error: Array) -> Array:
        return np.abs(error)
