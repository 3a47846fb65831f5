"""Metrics against scikit-learn and numpy, in one batch and in many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from amp_rewrite import metrics
from amp_rewrite.errors import OptionError

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = RNG.integers(0, 5, 60)
LABELS[LABELS == 3] = 1  # a class that never occurs
SCORES = RNG.normal(size=60).astype(np.float32)
YES = RNG.integers(0, 2, 60).astype(np.float32)
TARGETS = {"logits": "y", "labels": "t"}


@pytest.fixture(scope="module")
def sk() -> Any:
    """Return scikit-learn's metrics, which are loaded for these tests and not for all."""
    return pytest.importorskip("sklearn.metrics")


def measured(
    metric: metrics.Metric, y: Any, t: Any, batch: int, targets: Mapping[str, Any] = TARGETS
) -> float:
    """Return a metric over batches, measured twice: what was seen before is forgotten."""
    for _ in range(2):
        assert set(metric.begin(targets)) <= {"y", "t", "loss"}
        for k in range(0, len(y), batch):
            loss = np.array(0.1 * (k + 1), np.float32)
            metric.update({"y": y[k : k + batch], "loss": loss}, {"t": t[k : k + batch]})
    return metric.result()


@pytest.mark.parametrize("batch", [60, 7])
def test_accuracy(batch: int, sk: Any) -> None:
    expected = sk.accuracy_score(LABELS, LOGITS.argmax(-1))
    assert measured(metrics.Accuracy(), LOGITS, LABELS, batch) == pytest.approx(expected)
    hot = np.eye(5, dtype=np.float32)[LABELS]
    assert measured(metrics.Accuracy(), LOGITS, hot, batch) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 4, 5, 9])
def test_top_k(k: int, sk: Any) -> None:
    top = metrics.get(f"top-{k}")
    expected = sk.top_k_accuracy_score(LABELS, LOGITS, k=min(k, 5), labels=range(5)) if k < 5 else 1
    assert measured(top, LOGITS, LABELS, 13) == pytest.approx(expected)


def test_classes_may_be_last_or_second_and_labels_probabilities() -> None:
    logits = np.eye(3, dtype=np.float32)[[0, 1, 2, 2]]
    labels = np.array([0, 1, 2, 0])
    stacked = np.stack([logits, logits], 2)  # (N, C, 2)
    assert measured(metrics.Accuracy(), logits, labels, 3) == 0.75
    assert measured(metrics.Accuracy(), logits, np.eye(3, dtype=np.float32)[labels], 3) == 0.75
    assert measured(metrics.Accuracy(), stacked, np.stack([labels, labels], 1), 3) == 0.75


IGNORING: dict[str, tuple[metrics.Metric, Callable[[Any, Any, Any], float]]] = {
    "accuracy": (
        metrics.Accuracy(ignore_index=-1),
        lambda sk, t, y: sk.accuracy_score(t, y.argmax(-1)),
    ),
    "accuracy of the step": (
        metrics.get("accuracy"),
        lambda sk, t, y: sk.accuracy_score(t, y.argmax(-1)),
    ),
    "top 3 by words": (
        metrics.get("top-3:y:t"),
        lambda sk, t, y: sk.top_k_accuracy_score(t, y, k=3, labels=range(5)),
    ),
    "f1": (
        metrics.F1Score(ignore_index=-1),
        lambda sk, t, y: sk.f1_score(t, y.argmax(-1), average="macro", labels=range(5)),
    ),
    "f1 by words": (
        metrics.get("f1:y:t"),
        lambda sk, t, y: sk.f1_score(t, y.argmax(-1), average="macro", labels=range(5)),
    ),
}


@pytest.mark.parametrize("name", IGNORING)
def test_ignored_labels_do_not_count(name: str, sk: Any) -> None:
    metric, of = IGNORING[name]
    labels = np.where(RNG.random(60) < 0.5, -1, LABELS)
    kept = labels >= 0
    found = measured(metric, LOGITS, labels, 7, {**TARGETS, "ignore_index": -1})
    assert found == pytest.approx(of(sk, labels[kept], LOGITS[kept]))


def test_ignored_labels_of_a_sigmoid_do_not_count(sk: Any) -> None:
    labels = np.where(RNG.random(60) < 0.5, -1, YES)
    kept = labels >= 0
    metric = metrics.F1Score(average="binary", ignore_index=-1)
    found = measured(metric, SCORES, labels, 7)
    assert found == pytest.approx(sk.f1_score(YES[kept], SCORES[kept] > 0))


def test_what_a_step_ignores_is_a_matter_of_its_own_labels() -> None:
    targets = {"logits": "y", "labels": "another", "ignore_index": 1}
    counted = measured(metrics.get("accuracy:y:t"), LOGITS, LABELS, 7, targets)
    assert counted == pytest.approx((LOGITS.argmax(-1) == LABELS).mean())


def test_labels_may_be_tensors_of_others() -> None:
    labels = np.where(RNG.random(60) < 0.5, -1, LABELS)
    tensor = pytest.importorskip("onnxruntime").OrtValue.ortvalue_from_numpy(labels)
    for metric in (metrics.Accuracy(ignore_index=-1), metrics.Perplexity(ignore_index=-1)):
        found: list[float] = []
        for given in (labels, tensor):
            metric.begin(TARGETS)
            metric.update({"y": LOGITS, "loss": np.array(0.5)}, {"t": given})
            found.append(metric.result())
        assert found[0] == found[1]


def test_a_step_may_call_predictions_by_another_word() -> None:
    targets = {"predictions": "y", "labels": "t"}
    found = measured(metrics.get("mean-squared-error"), SCORES, YES, 7, targets)
    assert found == pytest.approx(((SCORES - YES) ** 2).mean())
    with pytest.raises(OptionError, match="does not know the logits"):
        metrics.get("accuracy").begin(targets)


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("batch", [60, 7])
def test_f1_of_classes(average: str, batch: int, sk: Any) -> None:
    expected = sk.f1_score(LABELS, LOGITS.argmax(-1), average=average, labels=range(5))
    found = measured(metrics.F1Score(average=average), LOGITS, LABELS, batch)
    assert found == pytest.approx(expected)


def test_f1_of_a_sigmoid_and_of_two_classes(sk: Any) -> None:
    expected = sk.f1_score(YES, SCORES > 0)
    assert measured(metrics.F1Score(average="binary"), SCORES, YES, 7) == pytest.approx(expected)
    two = np.stack([-SCORES, SCORES], -1)
    found = measured(metrics.F1Score(average="binary"), two, YES.astype(np.int64), 7)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("batch", [60, 7])
def test_errors(batch: int, sk: Any) -> None:
    found = measured(metrics.get("mean-squared-error:y:t"), SCORES, YES, batch, {})
    assert found == pytest.approx(sk.mean_squared_error(YES, SCORES))
    found = measured(metrics.MeanAbsoluteError("y", "t"), SCORES, YES, batch, {})
    assert found == pytest.approx(sk.mean_absolute_error(YES, SCORES))


def test_perplexity_weighs_batches_by_the_labels_that_count() -> None:
    labels = np.array([[1, 2], [3, -1], [-1, -1], [4, -1]])
    found = measured(metrics.Perplexity(ignore_index=-1), labels, labels, 2)
    assert found == pytest.approx(np.exp((0.1 * 3 + 0.3 * 1) / 4))
    assert measured(metrics.get("perplexity"), labels, labels, 2) == pytest.approx(np.exp(0.2))
    only_ignored = np.full((2, 2), -1)
    metric = metrics.Perplexity(ignore_index=-1)
    assert np.isnan(measured(metric, only_ignored, only_ignored, 2))


def test_perplexity_counts_as_the_loss_does() -> None:
    labels = np.array([[1, 2], [3, -1], [-1, -1], [4, -1]])
    metric = metrics.get("perplexity")
    assert metric.begin({**TARGETS, "ignore_index": -1}) == ()
    for k in (0, 2):
        metric.update({"loss": np.array(0.1 * (k + 1))}, {"t": labels[k : k + 2]})
    assert metric.result() == pytest.approx(np.exp((0.1 * 3 + 0.3 * 1) / 4))
    assert metric.begin({**TARGETS, "denominator": "d"}) == ("d",)
    for loss, weight in ((0.5, 3.0), (0.1, 1.0)):
        metric.update({"loss": np.array(loss), "d": np.array(weight)}, {"t": labels})
    assert metric.result() == pytest.approx(np.exp((0.5 * 3 + 0.1) / 4))


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.array(0.5, np.float16)])
def test_numbers_of_numpy_are_numbers(number: Any) -> None:
    metric = metrics.FunctionMean("m", lambda y, x: number)
    metric.begin({})
    metric.update({}, {"t": LABELS})
    assert metric.result() == 0.5


def test_a_function_of_ones_own() -> None:
    metric = metrics.FunctionMean("bias", lambda y, x: (y["y"] - x["t"]).mean(), ["y"])
    assert measured(metric, SCORES, YES, 7) == pytest.approx(float((SCORES - YES).mean()))
    assert metric.name == "bias"


def test_nothing_that_counts_is_nan() -> None:
    for name in ("accuracy", "f1", "mean-squared-error", "mean-absolute-error", "perplexity"):
        metric = metrics.get(name)
        metric.begin(TARGETS)
        assert np.isnan(metric.result())


def as_it_is(found: Any, feeds: Any) -> Any:
    return found["y"]


REFUSED = {
    "a name": (
        lambda: metrics.get("acuracy"),
        "found 'acuracy'; expected accuracy or",
    ),
    "no name": (lambda: metrics.get(3), "unknown metric"),  # type: ignore[arg-type]
    "top 0": (lambda: metrics.get("top-0"), "unknown metric"),
    "half a comparison": (lambda: metrics.get("f1:y"), "METRIC:PREDICTIONS:LABELS"),
    "k": (lambda: metrics.Accuracy(top_k=0), "impossible top_k"),
    "average": (lambda: metrics.F1Score(average="mean"), "unknown average"),
    "no function": (lambda: metrics.FunctionMean("m", 3), "computed by a function"),  # type: ignore[arg-type]
    "unknown logits": (lambda: metrics.Accuracy().begin({}), "does not know the logits"),
    "no labels": (
        lambda: measured(metrics.Accuracy(labels="u"), LOGITS, LABELS, 60),
        "finds no labels",
    ),
    "shapes": (
        lambda: measured(metrics.MeanSquaredError("y", "t"), LOGITS, YES, 60),
        "found the shapes .*; expected values of one shape",
    ),
    "integers": (
        lambda: measured(metrics.Accuracy(), LOGITS.astype(np.int64), LABELS, 60),
        "'accuracy' cannot compare 'y' with 't'; found predictions of int64; expected logits",
    ),
    "a scalar": (
        lambda: measured(metrics.Accuracy("loss", "t"), LOGITS, LABELS, 60),
        r"found the shape \[\]; expected as many numbers as 'y' has in the shape \[60, 5\]",
    ),
    "a wrong rank": (
        lambda: measured(metrics.get("top-2:y:t"), LOGITS[:, None, None], LABELS, 60),
        r"found the shapes \[60, 1, 1, 5\] and \[60\]",
    ),
    "one class": (
        lambda: measured(metrics.F1Score(), SCORES[:, None], YES, 60),
        "two or more classes",
    ),
    "an unknown class": (
        lambda: measured(metrics.Accuracy(), LOGITS[:, :4], LABELS, 60),
        "found the label 4; expected classes from 0 to 3, or ignore_index",
    ),
    "classes for a sigmoid": (
        lambda: measured(metrics.F1Score(), SCORES, LABELS, 60),
        "expected 0 or 1 for each logit of a sigmoid",
    ),
    "what is fed": (
        lambda: measured(metrics.get("f1:t:t"), LOGITS, LABELS, 60),
        "found something that is fed; expected a value that the model computes",
    ),
    "an array of a function": (
        lambda: measured(metrics.FunctionMean("m", as_it_is, ["y"]), LOGITS, LABELS, 9),
        r"'m' is not a number; found an array of the shape \[9, 5\]",
    ),
    "ignore_index": (lambda: metrics.F1Score(ignore_index="a"), "ignore_index must be an integer"),  # type: ignore[arg-type]
    "words in the remedy": (
        lambda: metrics.F1Score().begin({}),
        "name them: f1:PREDICT",
    ),
    "words of top-k": (
        lambda: metrics.Accuracy(top_k=5).begin({}),
        "name them: top-5:PREDICTIONS:LABELS",
    ),
    "binary of five": (
        lambda: measured(metrics.F1Score(average="binary"), LOGITS, LABELS, 60),
        "one of two classes; found 5 classes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(OptionError, match=message):
        call()
