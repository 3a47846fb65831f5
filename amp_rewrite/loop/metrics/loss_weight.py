"""How much a batch counts in the mean of a loss over batches of different sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_rewrite.loop.metrics.metric import Values, number_of_examples, on_host
from amp_rewrite.training.step.step_info import DENOMINATOR, IGNORED, LABELS


class LossWeight:
    """What the loss of a batch has been divided by, so that the mean is that of one large batch.

    That is the denominator of a weighted mean, where the loss has noted one; otherwise the number
    of labels that count, or of examples where the labels are not known.

    Attributes:
        needed: The names of the values that `of` needs.
    """

    def __init__(self, targets: Mapping[str, Any]) -> None:
        """Take what the step says of its loss; see `Metric.begin`."""
        self._labels: str | None = targets.get(LABELS)
        self._ignored: int | None = targets.get(IGNORED)
        self._denominator: str | None = targets.get(DENOMINATOR)
        self.needed = () if self._denominator is None else (self._denominator,)

    def of(self, found: Values, feeds: Values) -> float:
        """Return the weight of one batch; 0 if nothing in it counts.

        Args:
            found: The values of the batch that are needed.
            feeds: What was fed.
        """
        if self._denominator is not None:
            return float(found[self._denominator])
        if self._labels is None or self._labels not in feeds:
            return number_of_examples(feeds)
        labels = on_host(feeds[self._labels])
        return labels.size if self._ignored is None else int((labels != self._ignored).sum())
