"""Metrics of predicted classes, with labels of which some may not count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.metrics.metric import Array, Comparison, LossWeight, Metric, Values, ratio
from amp_rewrite.training.step.step_info import IGNORED, LABELS, LOGITS, LOSS, PREDICTIONS

_AVERAGES = ("macro", "micro", "binary")


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
        right = _hits(*self.aligned(predicted, labels), self._top)
        self._correct += int(right.sum())
        self._answers += right.size

    def result(self) -> float:
        """Return the share, from 0 to 1."""
        return ratio(self._correct, self._answers)


def _hits(logits: Array, labels: Array, top_k: int = 1) -> Array:
    """Return where the label is among the k largest logits (..., C): bool, one per label."""
    if top_k == 1:
        return logits.argmax(-1) == labels
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :top_k]
    return (order == labels[..., None]).any(-1)


class F1Score(ClassComparison):
    """2 TP / (2 TP + FP + FN), from counts over all batches.

    Logits in the shape of integer or 0/1 labels are those of a sigmoid, positive where above 0,
    each column a class; otherwise the class is that of the largest logit. A class that neither
    occurs nor is predicted has the score 0, as in scikit-learn
    (https://scikit-learn.org/stable/modules/generated/sklearn.metrics.f1_score.html).
    """

    known_as = (LOGITS, PREDICTIONS)

    def __init__(
        self,
        logits: str | None = None,
        labels: str | None = None,
        *,
        average: str = "macro",
        ignore_index: int | None = None,
    ) -> None:
        """Say what to compare.

        Args:
            logits: (N, C), or (N,) of a sigmoid; None is what the step says.
            labels: Class numbers (N,), or 0 and 1 in the shape of the logits; None is what the
                step says.
            average: "macro" is the mean over the classes, "micro" counts all together, "binary"
                is the score of class 1.
            ignore_index: Labels of this number do not count; None is what the step says.

        Raises:
            OptionError: There is no such average, or another argument is of another kind.
        """
        self._average = arguments.one_of("average", average, _AVERAGES)
        super().__init__(logits, labels, "f1", ignore_index=ignore_index)
        self._forget()

    def _forget(self) -> None:
        self._true = self._predicted = self._actual = np.zeros(0, np.int64)
        self._counted = False

    def _compare(self, predicted: Array, labels: Array) -> None:
        if predicted.shape == labels.shape and predicted.ndim:
            said, is_so = self._of_sigmoid(predicted, labels)
            self._counted |= bool(self.counting(labels).any())
        else:
            classes, numbers = self.aligned(predicted, labels)
            self._counted |= bool(numbers.size)
            every = np.arange(classes.shape[-1])
            said, is_so = classes.argmax(-1)[..., None] == every, numbers[..., None] == every
        columns = said.shape[-1] if said.ndim > 1 else 1
        said, is_so = said.reshape(-1, columns), is_so.reshape(-1, columns)
        self._true = _add_counts(self._true, (said & is_so).sum(0))
        self._predicted = _add_counts(self._predicted, said.sum(0))
        self._actual = _add_counts(self._actual, is_so.sum(0))

    def _of_sigmoid(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """Return which elements are said to be positive, and which are; False if ignored."""
        kept = self.counting(labels)
        wrong = kept & ~((labels >= 0) & (labels <= 1))
        if wrong.any():
            raise self.misfit(
                f"the label {labels[wrong][0]} in the shape of the predictions",
                "0 or 1 for each logit of a sigmoid",
            )
        return kept & (logits > 0), kept & (labels > 0.5)

    def result(self) -> float:
        """Return the score, from 0 to 1.

        Raises:
            OptionError: The average is "binary", and there are more than two classes.
        """
        true, total = self._true, self._predicted + self._actual
        if not self._counted:
            return float("nan")
        if self._average == "micro":
            true, total = true.sum(keepdims=True), total.sum(keepdims=True)
        elif self._average == "binary":
            if true.size > 2:
                raise OptionError(
                    "a binary F1 score is that of one of two classes",
                    found=f"{true.size} classes",
                    remedy='say average="macro"',
                )
            true, total = true[-1:], total[-1:]
        return float(np.mean(2 * true / np.maximum(total, 1)))


def _add_counts(counts: Array, more: Array) -> Array:
    return more.astype(np.int64) if not counts.size else counts + more


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
        own = {LABELS: labels, IGNORED: ignored_number(ignore_index)}
        self._given = {key: value for key, value in own.items() if value is not None}
        self.begin({})

    def begin(self, targets: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the weight of a batch needs besides the loss."""
        targets_of_loss = {key: targets[key] for key in (LABELS, IGNORED) if key in targets}
        self._weight = LossWeight({**targets_of_loss, **self._given} if self._given else targets)
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
