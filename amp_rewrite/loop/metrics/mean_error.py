"""Means over examples: errors of predictions, and what a function of a user says of each batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.metrics.metric import (
    Array,
    Comparison,
    Metric,
    Values,
    as_number,
    number_of_examples,
    ratio,
)
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
        self._sum += float(self._terms_of(error).sum())
        self._count += error.size

    @abstractmethod
    def _terms_of(self, error: Array) -> Array:
        """Return what the mean is taken of, element by element."""

    def result(self) -> float:
        """Return the mean."""
        return ratio(self._sum, self._count)


class MeanSquaredError(_MeanError):
    """The mean of (predictions - labels)^2 over all elements."""

    def __init__(self, predictions: str | None = None, labels: str | None = None) -> None:
        """Say what to compare; None is what the step says."""
        super().__init__(predictions, labels, "mean_squared_error")

    def _terms_of(self, error: Array) -> Array:
        return error * error


class MeanAbsoluteError(_MeanError):
    """The mean of |predictions - labels| over all elements."""

    def __init__(self, predictions: str | None = None, labels: str | None = None) -> None:
        """Say what to compare; None is what the step says."""
        super().__init__(predictions, labels, "mean_absolute_error")

    def _terms_of(self, error: Array) -> Array:
        return np.abs(error)


class FunctionMean(Metric):
    """The mean over examples of a function of each batch."""

    def __init__(
        self,
        name: str,
        function: Callable[[Values, Values], float],
        fetches: Sequence[str] = (),
        *,
        larger_is_better: bool = True,
    ) -> None:
        """Say what to compute.

        Args:
            name: What it is called in rows.
            function: (values of the step, feeds) -> the mean over the examples of the batch.
            fetches: The names of the values of the step that it needs, besides the loss.
            larger_is_better: Whether more of it is better.

        Raises:
            OptionError: It is not a function, or another argument is of another kind.
        """
        self.name = arguments.text("name", name, what="what the metric is called")
        if not callable(function):
            raise OptionError(
                "a metric is computed by a function", where=name, found=f"{function!r:.60}"
            )
        self.larger_is_better = arguments.switch("larger_is_better", larger_is_better)
        self._function, self._fetches = function, arguments.texts("fetches", fetches)
        self._sum = self._count = 0.0

    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the values that the function needs."""
        self._sum = self._count = 0.0
        return self._fetches

    def update(self, found: Values, feeds: Values) -> None:
        """Call the function with one batch."""
        count = number_of_examples(feeds)
        self._sum += as_number(self._function(found, feeds), self.name) * count
        self._count += count

    def result(self) -> float:
        """Return the mean."""
        return ratio(self._sum, self._count)
