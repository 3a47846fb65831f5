"""How many classes a language model hesitates between."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from amp_rewrite.metrics.metric import LOSS, Metric, Values, number_of_examples, ratio


class Perplexity(Metric):
    """E to the mean cross entropy of all labels, the loss being their mean in each batch."""

    name = "perplexity"
    larger_is_better = False

    def __init__(self, labels: str | None = None, *, ignore_index: int | None = None) -> None:
        """Say what a batch counts.

        Args:
            labels: The input whose elements the loss is the mean over; None is what the step says,
                and examples if it says nothing.
            ignore_index: Labels of this number are not in the mean.
        """
        self._given, self._ignored = labels, ignore_index
        self._labels: str | None = labels
        self._sum = self._count = 0.0

    def begin(self, targets: Mapping[str, str]) -> tuple[str, ...]:
        """Return nothing: the loss is all it needs."""
        self._labels = self._given or targets.get("labels")
        self._sum = self._count = 0.0
        return ()

    def update(self, found: Values, feeds: Values) -> None:
        """Take the loss of one batch; see `Metric`."""
        labels = feeds.get(self._labels or "")
        if labels is None:
            count = number_of_examples(feeds)
        else:
            array = np.asarray(labels)
            count = array.size if self._ignored is None else int((array != self._ignored).sum())
        if count:
            self._sum += float(found[LOSS]) * count
            self._count += count

    def result(self) -> float:
        """Return e to the mean; infinity if that is above any float."""
        mean = ratio(self._sum, self._count)
        try:
            return math.exp(mean)
        except OverflowError:
            return math.inf
