"""What a metric is: numbers of batches in, one number out, each batch by its weight."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.ort.ort_values import copy_of, from_dlpack, is_ort_value
from amp_rewrite.training.step.step_info import DENOMINATOR, IGNORED, LABELS, LOGITS, PREDICTIONS

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]
"""Name of a value of the step, or of an input -> array."""


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
    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Forget what was seen.

        Args:
            targets: What the loss compares, as far as the step knows: the names of the "logits" or
                other "predictions" and of the "labels", the "ignore_index" of labels that do not
                count, and the name of the "denominator" of a mean over labels that do not count
                equally.

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
    """A metric that compares a value of the model with labels.

    Attributes:
        names: The names of the predictions and the labels, once `begin` was called.
    """

    known_as = (LOGITS,)
    """What a step may call the predictions."""

    def __init__(
        self,
        predicted: str | None,
        labels: str | None,
        name: str,
        *,
        word: str | None = None,
    ) -> None:
        """Keep the names.

        Args:
            predicted: The predictions; None is what the step says.
            labels: The labels; None is what the step says.
            name: What the metric is called in rows.
            word: What it is called on the command line, if that is another name.

        Raises:
            OptionError: A name is none.
        """
        for what, value_name in (("the predictions", predicted), (LABELS, labels)):
            if value_name is not None:
                arguments.text(what, value_name, what="the name of a value")
        self.name, self._word = name, word or name.replace("_", "-")
        self._asked = {PREDICTIONS: predicted, LABELS: labels}
        self.names = {PREDICTIONS: "", LABELS: ""}

    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the name of the predictions; see `Metric`."""
        candidates = [targets[key] for key in self.known_as if key in targets]
        predicted = self._asked[PREDICTIONS] or next(iter(candidates), None)
        labels = self._asked[LABELS] or targets.get(LABELS)
        for what, name in ((self.known_as[0], predicted), (LABELS, labels)):
            if name is None:
                raise OptionError(
                    f"the metric {self.name!r} does not know the {what}",
                    found="a step that does not say which values they are",
                    remedy=f"name them: {self._word}:PREDICTIONS:LABELS",
                )
        self.names = {PREDICTIONS: str(predicted), LABELS: str(labels)}
        self._forget()
        return (self.names[PREDICTIONS],)

    def update(self, found: Values, feeds: Values) -> None:
        """Compare one batch; see `Metric`."""
        labels, predicted = self.names[LABELS], self.names[PREDICTIONS]
        if labels not in feeds:
            raise OptionError(
                f"the metric {self.name!r} finds no labels",
                where=labels,
                found=", ".join(feeds),
                expected="an input that is fed",
            )
        if predicted in feeds:
            raise self.misfit("something that is fed", "a value that the model computes")
        self._compare(np.asarray(found[predicted]), on_host(feeds[labels]))

    def misfit(self, found: str, expected: str) -> OptionError:
        """Return the error about values that cannot be compared."""
        return OptionError(
            f"the metric {self.name!r} cannot compare {self.names[PREDICTIONS]!r} "
            f"with {self.names[LABELS]!r}",
            found=found,
            expected=expected,
        )

    @abstractmethod
    def _forget(self) -> None:
        """Set all sums to zero."""

    @abstractmethod
    def _compare(self, predicted: Array, labels: Array) -> None:
        """Take the predictions and the labels of one batch."""


def as_number(result: object, name: str) -> float:
    """Return what a metric found as a float; numbers of numpy are numbers too."""
    scalar = result[()] if isinstance(result, np.ndarray) and not result.ndim else result  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(scalar, numbers.Real):
        raise OptionError(
            f"the metric {name!r} is not a number",
            found=_content_text(result),
            expected="a float",
            remedy="return the mean over the examples",
        )
    try:
        return float(scalar)
    except OverflowError:  # an integer above any float
        return math.inf if int(scalar) > 0 else -math.inf  # pyright: ignore[reportArgumentType]


def _content_text(content: object) -> str:
    if isinstance(content, np.ndarray):
        return f"an array of the shape {list(content.shape)}"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return f"{type(content).__name__} {content!r:.40}"


def on_host(fed: Any) -> Array:
    """Return what was fed, which may lie on a device, as an array."""
    if not isinstance(fed, np.ndarray) and hasattr(fed, "__dlpack__"):
        fed = from_dlpack(fed)
    return copy_of(fed) if is_ort_value(fed) else np.asarray(fed)


def ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN if the whole is 0."""
    return part / whole if whole else float("nan")


def number_of_examples(feeds: Values) -> int:
    """Return the number of examples in a batch."""
    return max((len(array) for array in feeds.values() if getattr(array, "ndim", 0)), default=1)


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
        """Return the weight of one batch; 0 if nothing in it counts."""
        if self._denominator is not None:
            return float(found[self._denominator])
        if self._labels is None or self._labels not in feeds:
            return number_of_examples(feeds)
        labels = on_host(feeds[self._labels])
        return labels.size if self._ignored is None else int((labels != self._ignored).sum())
