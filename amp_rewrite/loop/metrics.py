"""Metrics on held-out examples besides the loss: the accuracy, and functions of users.

A metric that is unknown, finds no labels or outputs, or is no number is an OptionError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from amp_rewrite.errors import OptionError
from amp_rewrite.training.session.input_checks import on_host
from amp_rewrite.training.step.step_info import (
    DENOMINATOR,
    IGNORED,
    LABELS,
    LOGITS,
    LOSS,
    PREDICTIONS,
)

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]
"""Name of a value of the step, or of an input -> array."""
Function = Callable[[Array, Array], float]
"""(labels, outputs) of all held-out examples -> a number, as scikit-learn's metrics are."""
Metrics = str | Function | Iterable[str | Function] | None
"""The metrics that users ask for; None is the accuracy if the step names its logits."""

_ACCURACY = ("accuracy", "acc", "categorical_accuracy", "sparse_categorical_accuracy")
"""Names of the accuracy, which Keras tells apart by the form of the labels."""


class Measure(ABC):
    """A number that is found from the labels and the outputs of batches.

    Attributes:
        name: What it is called in rows: "eval_<name>".
    """

    name: str

    @abstractmethod
    def take(self, labels: Array, outputs: Array) -> None:
        """Take one batch."""

    @abstractmethod
    def result(self) -> float:
        """Return the number over all batches; NaN if they held nothing that counts."""


class Accuracy(Measure):
    """The share of labels whose logit is the largest; ties go to the lower class."""

    name = "accuracy"

    def __init__(self) -> None:
        """Nothing has been taken yet."""
        self._right = self._all = 0

    def take(self, labels: Array, outputs: Array) -> None:
        """Compare the classes (N,) of one batch with its logits (N, C)."""
        self._right += int((outputs.argmax(-1) == labels).sum())
        self._all += len(labels)

    def result(self) -> float:
        """Return the share, from 0 to 1."""
        return ratio(self._right, self._all)


class OfFunction(Measure):
    """The result of a function of all labels and outputs at once."""

    def __init__(self, function: Function) -> None:
        """Keep the function, whose name is that of the number."""
        named = getattr(function, "func", function)  # of functools.partial
        self.name = getattr(named, "__name__", type(named).__name__)
        self._function = function
        self._labels: list[Array] = []
        self._outputs: list[Array] = []

    def take(self, labels: Array, outputs: Array) -> None:
        """Keep one batch."""
        self._labels.append(labels)
        self._outputs.append(outputs)

    def result(self) -> float:
        """Call the function."""
        if not sum(map(len, self._labels)):
            return float("nan")
        found: Any = self._function(np.concatenate(self._labels), np.concatenate(self._outputs))
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"the metric {self.name!r} is not a number",
                found=f"{type(found).__name__} {found!r:.40}",
                expected="a float",
            ) from error


def measures_of(metrics: Metrics, targets: Mapping[str, Any]) -> list[Measure]:
    """Return what is to be measured.

    Args:
        metrics: What the user asks for.
        targets: What the step says of its loss; see `Compared`.
    """
    classes = {LOGITS, LABELS} <= targets.keys()
    if metrics is None:
        return [Accuracy()] if classes else []
    given: Any = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics
    if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "metrics are names or functions", found=f"an object of type {type(given).__name__}"
        )
    measures = [_measure(metric) for metric in given if not _is(metric, LOSS)]
    names = [measure.name for measure in measures]
    if len(set(names)) < len(names):
        raise OptionError("two metrics have one name", found=", ".join(names))
    if measures and (LABELS not in targets or not targets.keys() & {LOGITS, PREDICTIONS}):
        raise _unknown(names[0], "outputs and labels")
    if Accuracy.name in names and not classes:
        raise _unknown(Accuracy.name, "logits of classes")
    return measures


def _measure(metric: Any) -> Measure:
    if callable(metric):
        return OfFunction(cast("Function", metric))
    if _is(metric, *_ACCURACY):
        return Accuracy()
    raise OptionError(
        "unknown metric",
        found=repr(metric),
        expected="accuracy, or a function of labels and outputs",
    )


def _is(metric: object, *names: str) -> bool:
    return isinstance(metric, str) and metric in names


def _unknown(name: str, what: str) -> OptionError:
    return OptionError(
        f"the metric {name!r} does not know the {what}",
        found="a step that does not say which values they are",
        remedy='build it with build_step(..., targets={"logits": ..., "labels": ...})',
    )


class Compared:
    """The operands of a loss: its labels, and the outputs of the model."""

    def __init__(self, targets: Mapping[str, Any]) -> None:
        """Take what a step says of its loss.

        Args:
            targets: The names of the "logits" of classes or of other "predictions", and of the
                "labels"; the "ignore_index" of labels that do not count.
        """
        self._has_classes = LOGITS in targets
        self.outputs: str = targets[LOGITS if self._has_classes else PREDICTIONS]
        self._labels: str = targets[LABELS]
        self._ignored: int | None = targets.get(IGNORED)

    def of(self, found: Values, feeds: Values) -> tuple[Array, Array]:
        """Return the labels and the outputs of a batch.

        Those of classes are the numbers (K,) and the logits (K, C) of all labels that count.
        """
        if self._labels not in feeds:
            raise OptionError(
                "metrics find no labels",
                where=self._labels,
                found=", ".join(feeds),
                expected="an input that is fed",
            )
        labels, outputs = on_host(feeds[self._labels]), np.asarray(found[self.outputs])
        if not self._has_classes:
            return labels, outputs
        labels, outputs = self._classes(labels, outputs)
        counts = slice(None) if self._ignored is None else labels != self._ignored
        return labels[counts], outputs[counts]

    def _classes(self, labels: Array, logits: Array) -> tuple[Array, Array]:
        """Return class numbers (K,) and logits (K, C).

        Logits are (N, ..., C) or (N, C, ...), the last where both could be. Labels are class
        numbers (N, ...), or probabilities in the shape of the logits.
        """
        if labels.shape == logits.shape and np.issubdtype(labels.dtype, np.floating):
            labels = labels.argmax(-1)
        elif logits.ndim > 1 and logits.shape[:-1] != labels.shape:
            logits = np.moveaxis(logits, 1, -1)
        if logits.ndim < 2 or logits.shape[:-1] != labels.shape:
            raise OptionError(
                f"metrics cannot compare {self.outputs!r} with {self._labels!r}",
                found=f"the shapes {list(logits.shape)} and {list(labels.shape)}",
                expected="logits (N, ..., C) or (N, C, ...) and labels (N, ...)",
            )
        return labels.reshape(-1), logits.reshape(-1, logits.shape[-1])


class LossWeight:
    """The divisor of a batch's loss, so that the mean is that of one large batch.

    That is the denominator of a weighted mean, where the loss has noted one; otherwise the number
    of labels that count, or of examples where the labels are not known.

    Attributes:
        needed: The names of the values that `of` needs.
    """

    def __init__(self, targets: Mapping[str, Any]) -> None:
        """Take what a step says of its loss; see `Compared`."""
        self._labels: str | None = targets.get(LABELS)
        self._ignored: int | None = targets.get(IGNORED)
        self._denominator: str | None = targets.get(DENOMINATOR)
        self.needed: Sequence[str] = () if self._denominator is None else (self._denominator,)

    def of(self, found: Values, feeds: Values) -> float:
        """Return the weight of one batch; 0 if nothing in it counts."""
        if self._denominator is not None:
            return float(found[self._denominator])
        if self._labels is None or self._labels not in feeds:
            return _number_of_examples(feeds)
        labels = on_host(feeds[self._labels])
        return labels.size if self._ignored is None else int((labels != self._ignored).sum())


def ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN if the whole is 0."""
    return part / whole if whole else float("nan")


def _number_of_examples(feeds: Values) -> int:
    return max((len(array) for array in feeds.values() if getattr(array, "ndim", 0)), default=1)
