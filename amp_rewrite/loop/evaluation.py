"""Evaluate a session on held-out examples: the loss, the accuracy, and functions of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from amp_rewrite.errors import DataError, FeedError, FetchError, OptionError, placed
from amp_rewrite.loop.plan_and_progress import scalar_loss
from amp_rewrite.training.data.as_examples import Batch, Examples
from amp_rewrite.training.session.feeds import on_host
from amp_rewrite.training.session.training_session import TrainingSession
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
"""The metrics of a user; None is the accuracy if the step names its logits."""

ACCURACY = "accuracy"
_ACCURACIES = (ACCURACY, "acc", "categorical_accuracy", "sparse_categorical_accuracy")
"""Names of the accuracy in Keras, for different forms of labels."""


class Measure:
    """A number of all labels and outputs; rows call it "eval_<name>".

    The accuracy is the share of labels whose logit is the largest; ties go to the lower class.
    """

    def __init__(self, function: Function | None = None) -> None:
        """Keep a function, which gives the number its name; None is the accuracy."""
        named = getattr(function, "func", function)  # of functools.partial
        name = getattr(named, "__name__", type(named).__name__)
        self.name: str = ACCURACY if function is None else name
        self._function = function
        self._batches: list[tuple[Array, Array]] = []
        self._right = self._all = 0

    def take(self, labels: Array, outputs: Array) -> None:
        """Take one batch; for the accuracy, classes (N,) and logits (N, C)."""
        self._all += len(labels)
        if self._function is None:
            self._right += int((outputs.argmax(-1) == labels).sum())
        else:
            self._batches.append((labels, outputs))

    def result(self) -> float:
        """Return the number over all batches; NaN if no label counts."""
        if self._function is None or not self._all:
            return ratio(self._right, self._all)
        labels, outputs = (np.concatenate(arrays) for arrays in zip(*self._batches, strict=True))
        found: Any = self._function(labels, outputs)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"the metric {self.name!r} is not a number",
                found=f"{type(found).__name__} {found!r:.40}",
                expected="a float",
            ) from error


def measures_of(metrics: Metrics, targets: Mapping[str, Any]) -> list[Measure]:
    """Return the measures of a user's metrics; for `targets` see `Compared`.

    Raises:
        OptionError: A metric is unknown, or has no labels or outputs in the step.
    """
    classes = {LOGITS, LABELS} <= targets.keys()
    if metrics is None:
        return [Measure()] if classes else []
    given: Any = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics
    if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "metrics are names or functions", found=f"an object of type {type(given).__name__}"
        )
    measures = [_measure(metric) for metric in given if callable(metric) or metric != LOSS]
    names = [measure.name for measure in measures]
    if len(set(names)) < len(names):
        raise OptionError("two metrics have one name", found=", ".join(names))
    if measures and (LABELS not in targets or not targets.keys() & {LOGITS, PREDICTIONS}):
        raise _unknown(names[0], "outputs and labels")
    if ACCURACY in names and not classes:
        raise _unknown(ACCURACY, "logits of classes")
    return measures


def _measure(metric: Any) -> Measure:
    if callable(metric):
        return Measure(cast("Function", metric))
    if isinstance(metric, str) and metric in _ACCURACIES:
        return Measure()
    raise OptionError(
        "unknown metric",
        found=repr(metric),
        expected="accuracy, or a function of labels and outputs",
    )


def _unknown(name: str, what: str) -> OptionError:
    return OptionError(
        f"the metric {name!r} does not know the {what}",
        found="a step that does not say which values they are",
        remedy='build it with build_step(..., targets={"logits": ..., "labels": ...})',
    )


class Compared:
    """The operands of a loss: its labels, and the outputs of the model."""

    def __init__(self, targets: Mapping[str, Any]) -> None:
        """Keep the targets of a step.

        Args:
            targets: The names of the "logits" of classes or of other "predictions", and of the
                "labels"; the "ignore_index" of labels that do not count.
        """
        self._has_classes = LOGITS in targets
        self.outputs: str = targets[LOGITS if self._has_classes else PREDICTIONS]
        self._labels: str = targets[LABELS]
        self._ignored: int | None = targets.get(IGNORED)

    def of(self, found: Values, feeds: Values) -> tuple[Array, Array]:
        """Return the labels and outputs of a batch: of classes (K,) and (K, C) that count."""
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


def loss_weight(targets: Mapping[str, Any], found: Values, feeds: Values) -> float:
    """Return the weight of a batch in the mean loss; for `targets` see `Compared`.

    It is the denominator of a weighted mean, if the loss has one; otherwise the number of labels
    that count; of examples, if the step does not know its labels.
    """
    if targets.get(DENOMINATOR) is not None:
        return float(found[targets[DENOMINATOR]])
    if targets.get(LABELS) not in feeds:
        lengths = (len(array) for array in feeds.values() if getattr(array, "ndim", 0))
        return max(lengths, default=1)
    labels, ignored = on_host(feeds[targets[LABELS]]), targets.get(IGNORED)
    return labels.size if ignored is None else int((labels != ignored).sum())


def ratio(part: float, whole: float) -> float:
    """Return part / whole, NaN if the whole is 0."""
    return part / whole if whole else float("nan")


def evaluate(
    session: TrainingSession, data: Examples, batch: int, metrics: Metrics = None
) -> dict[str, float]:
    """Return the mean loss in inference mode, and metrics, as `Trainer.evaluate` does.

    Batches count by `loss_weight`. If the model has a fixed batch size, the last examples that do
    not fill a batch are omitted.
    """
    check_fills(data, batch, session)
    evaluation = _Evaluation(session, metrics)
    for feeds in data.epoch(batch, drop_last=session.fixed_batch):
        evaluation.take(feeds)
    return evaluation.result()


def rehearse(
    session: TrainingSession, data: Examples, batch: int, metrics: Metrics
) -> tuple[str, ...]:
    """Evaluate one batch, to find unfit data before training; return the names of the results."""
    if data.once:
        raise DataError(
            "the held-out data can be read only once, and are read for every evaluation",
            where=data.where,
            remedy="pass a list of batches, or a function that returns a new iterator each time",
        )
    check_fills(data, batch, session)
    evaluation = _Evaluation(session, metrics)
    first = next(iter(data.epoch(batch)), None)
    if first is None:
        raise DataError("the held-out data hold no examples", where=data.where)
    try:
        evaluation.take(first)
    except FeedError as error:
        raise placed(error, data.where or "held-out data") from error
    return evaluation.names


class _Evaluation:
    """The mean loss and the metrics of the batches that it takes."""

    def __init__(self, session: TrainingSession, metrics: Metrics) -> None:
        self._targets = session.info.targets or {}
        if LOSS not in session.info.fetches:
            raise FetchError("the step has no loss to evaluate")
        self._session = session
        self._measures = measures_of(metrics, self._targets)
        self._compared = Compared(self._targets) if self._measures else None
        outputs = None if self._compared is None else self._compared.outputs
        needed = (LOSS, self._targets.get(DENOMINATOR), outputs)
        self._fetches = list(dict.fromkeys(name for name in needed if name is not None))
        self._total = self._weights = 0.0
        self._seen = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("eval_loss", *(f"eval_{measure.name}" for measure in self._measures))

    def take(self, feeds: Batch) -> None:
        self._seen = True
        found = self._session.evaluate(feeds, self._fetches)
        loss, weight = scalar_loss(found[LOSS]), loss_weight(self._targets, found, feeds)
        if weight:  # the loss of labels that are all ignored may be NaN
            self._total, self._weights = self._total + loss * weight, self._weights + weight
        if self._compared is not None:
            labels, outputs = self._compared.of(found, feeds)
            for measure in self._measures:
                measure.take(labels, outputs)

    def result(self) -> dict[str, float]:
        if not self._seen:
            raise DataError("the held-out data hold no examples")
        numbers = (measure.result() for measure in self._measures)
        return dict(zip(self.names, (ratio(self._total, self._weights), *numbers), strict=True))


def check_fills(data: Examples, batch: int, session: TrainingSession) -> None:
    """Refuse data without an example, or without a batch of the fixed size."""
    if data.steps(batch, drop_last=session.fixed_batch) != 0:
        return
    if not data.size:
        raise DataError("the data hold no examples", where=data.where)
    fixed = f"at least {batch} (--batch), for the batch size of the model is fixed"
    raise DataError(
        "too few examples for a batch",
        where=data.where,
        found=data.size,
        expected=fixed if session.fixed_batch else "at least one for each shard",
    )


def summary(results: Mapping[str, float]) -> str:
    """Return an evaluation as text, for example "loss 0.0713, accuracy 98.33%"."""
    return ", ".join(
        f"{name.removeprefix('eval_').replace('_', ' ')} {_score_text(name, value)}"
        for name, value in results.items()
    )


def _score_text(name: str, value: float) -> str:
    return f"{value:.2%}" if name.endswith("accuracy") else f"{value:.4g}"
