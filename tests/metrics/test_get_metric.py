"""Metrics against scikit-learn and numpy, in one batch and in many."""

from __future__ import annotations

from collections.abc import Mapping
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
    metric: metrics.Metric, y: Any, t: Any, batch: int, targets: Mapping[str, str] = TARGETS
) -> float:
    """Return a metric over batches, measured twice: what was seen before is forgotten."""
    for _ in range(2):
        assert set(metric.begin(targets)) <= {"y"}
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


def test_ignored_labels_do_not_count(sk: Any) -> None:
    labels = np.where(RNG.random(60) < 0.5, -1, LABELS)
    kept = labels >= 0
    expected = sk.accuracy_score(labels[kept], LOGITS.argmax(-1)[kept])
    metric = metrics.Accuracy(ignore_index=-1)
    assert measured(metric, LOGITS, labels, 7) == pytest.approx(expected)


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


def test_a_function_of_ones_own() -> None:
    metric = metrics.FunctionMean("bias", lambda y, x: (y["y"] - x["t"]).mean(), ["y"])
    assert measured(metric, SCORES, YES, 7) == pytest.approx(float((SCORES - YES).mean()))
    assert metric.name == "bias"


def test_nothing_that_counts_is_nan() -> None:
    for name in ("accuracy", "f1", "mean-squared-error", "mean-absolute-error", "perplexity"):
        metric = metrics.get(name)
        metric.begin(TARGETS)
        assert np.isnan(metric.result())


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
        "values of one shape",
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
