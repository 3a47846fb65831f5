"""How many classes a language model hesitates between."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.loop.metrics.class_comparison import ignored_number
from amp_rewrite.loop.metrics.loss_weight import LossWeight
from amp_rewrite.loop.metrics.metric import Metric, Values, ratio
from amp_rewrite.training.step.step_info import IGNORED, LABELS, LOSS


class Perplexity(Metric):
    """E to the mean cross entropy of all labels, the loss being their mean in each batch."""

    name = "perplexity"
    larger_is_better = False

    def __init__(self, labels: str | None = None, *, ignore_index: int | None = None) -> None:
        """Say what a batch counts.

        Args:
            labels: The input whose elements the loss is the mean over; None is what the step says,
                and examples if it says nothing.
            ignore_index: Labels of this number are not in the mean; None is what the step says.

        Raises:
            OptionError: An argument is of another kind.
        """
        if labels is not None:
            arguments.text(LABELS, labels, what="the name of an input")
        given = {LABELS: labels, IGNORED: ignored_number(ignore_index)}
        self._given = {key: value for key, value in given.items() if value is not None}
        self.begin({})

    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the weight of a batch needs besides the loss."""
        known = {key: targets[key] for key in (LABELS, IGNORED) if key in targets}
        self._weight = LossWeight({**known, **self._given} if self._given else targets)
        self._sum = self._count = 0.0
        return self._weight.needed

    def update(self, found: Values, feeds: Values) -> None:
        """Take the loss of one batch; see `Metric`."""
        weight = self._weight.of(found, feeds)
        if weight:
            self._sum += float(found[LOSS]) * weight
            self._count += weight

    def result(self) -> float:
        """Return e to the mean; infinity if that is above any float."""
        mean = ratio(self._sum, self._count)
        try:
            return math.exp(mean)
        except OverflowError:
            return math.inf
