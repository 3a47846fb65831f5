"""What a metric is: numbers of batches in, one number out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.errors import OptionError

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]
"""Name of a value of the step, or of an input -> array."""

LOSS = "loss"
"""The name by which a step's loss is fetched."""


class Metric(ABC):
    """A number that is found batch by batch.

    Derive from it to measure what nobody else does: `begin` is called before the first batch,
    `update` with each one, `result` at the end.

    Attributes:
        name: What it is called in rows: "eval_<name>".
        larger_is_better: Whether more of it is better.
    """

    name: str
    larger_is_better = True

    @abstractmethod
    def begin(self, targets: Mapping[str, str]) -> tuple[str, ...]:
        """Forget what was seen.

        Args:
            targets: What the step says of itself: the names of its "logits" and "labels", where
                it knows them.

        Returns:
            The names of the values that `update` needs.

        Raises:
            OptionError: The step does not know which values to compare, and nobody has said.
        """

    @abstractmethod
    def update(self, found: Values, feeds: Values) -> None:
        """Take one batch.

        Args:
            found: The values that `begin` asked for, and the loss.
            feeds: What was fed.
        """

    @abstractmethod
    def result(self) -> float:
        """Return the metric over all batches; NaN if they held nothing that counts."""


class Comparison(Metric):
    """A metric that compares a value of the model with labels."""

    def __init__(self, predicted: str | None, labels: str | None, name: str) -> None:
        """Keep the names; None is what the step says."""
        self.name = name
        self._given = {"logits": predicted, "labels": labels}
        self.names = {"logits": "", "labels": ""}

    def begin(self, targets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the name of the predictions; see `Metric`."""
        for what, given in self._given.items():
            name = given or targets.get(what)
            if name is None:
                raise OptionError(
                    f"the metric {self.name!r} does not know the {what}",
                    found="a step that does not say which values they are",
                    remedy=f"name them: {type(self).__name__}(predictions, labels)",
                )
            self.names[what] = name
        self._forget()
        return (self.names["logits"],)

    def update(self, found: Values, feeds: Values) -> None:
        """Compare one batch; see `Metric`."""
        labels = self.names["labels"]
        if labels not in feeds:
            raise OptionError(
                f"the metric {self.name!r} finds no labels",
                where=labels,
                found=", ".join(feeds),
                expected="an input that is fed",
            )
        self._compare(np.asarray(found[self.names["logits"]]), np.asarray(feeds[labels]))

    @abstractmethod
    def _forget(self) -> None:
        """Set all sums to zero."""

    @abstractmethod
    def _compare(self, predicted: Array, labels: Array) -> None:
        """Take the predictions and the labels of one batch."""


def ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN if the whole is 0."""
    return part / whole if whole else float("nan")


def number_of_examples(feeds: Values) -> int:
    """Return the number of examples in a batch."""
    return max((len(array) for array in feeds.values() if getattr(array, "ndim", 0)), default=1)
