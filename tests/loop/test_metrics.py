"""Metrics of held-out examples: the accuracy, scikit-learn's, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from handmade import model_of

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.evaluation import Compared, measures_of
from amp_rewrite.optimizers import SGD

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = RNG.integers(0, 5, 60)
TARGETS = {"logits": "y", "labels": "t"}
MODEL = """<ir_version: 8, opset_import: ["": 17]>
    m (float[N, 4] x) => (float[N, 3] y)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul (x, w) }"""


def measured(metrics: Any, y: Any, t: Any, **targets: Any) -> list[float]:
    """Return metrics over batches of 7."""
    measures = measures_of(metrics, TARGETS | targets)
    compared = Compared(TARGETS | targets)
    for k in range(0, len(y), 7):
        labels, outputs = compared.of({"y": y[k : k + 7]}, {"t": t[k : k + 7]})
        for measure in measures:
            measure.take(labels, outputs)
    return [measure.result() for measure in measures]


def test_functions_of_scikit_learn_are_metrics() -> None:
    sk: Any = pytest.importorskip("sklearn.metrics")
    labels = np.where(RNG.random(60) < 0.5, -1, LABELS)
    kept = labels >= 0
    top_3 = partial(sk.top_k_accuracy_score, k=3, labels=range(5))

    def f1(labels: Any, logits: Any) -> float:
        return sk.f1_score(labels, logits.argmax(-1), average="macro")

    found = measured(["loss", "accuracy", top_3, f1], LOGITS, labels, ignore_index=-1)
    assert found == pytest.approx(
        [
            sk.accuracy_score(labels[kept], LOGITS[kept].argmax(-1)),
            top_3(labels[kept], LOGITS[kept]),
            f1(labels[kept], LOGITS[kept]),
        ]
    )


@pytest.mark.parametrize("name", ["acc", "categorical_accuracy", "sparse_categorical_accuracy"])
def test_classes_may_be_last_or_second_and_labels_probabilities(name: str) -> None:
    logits = np.eye(3, dtype=np.float32)[[0, 1, 2, 2]]
    labels = np.array([0, 1, 2, 0])
    stacked = np.stack([logits, logits], 2)  # (N, C, 2)
    assert measured(name, logits, labels) == [0.75]
    assert measured(name, logits, np.eye(3, dtype=np.float32)[labels]) == [0.75]
    assert measured(name, stacked, np.stack([labels, labels], 1)) == [0.75]


def test_labels_may_be_tensors_of_others() -> None:
    tensor = pytest.importorskip("onnxruntime").OrtValue.ortvalue_from_numpy(LABELS)
    labels, _ = Compared(TARGETS).of({"y": LOGITS}, {"t": tensor})
    np.testing.assert_array_equal(labels, LABELS)


def test_a_function_gets_the_predictions_that_the_loss_compares() -> None:
    held = {"x": RNG.normal(size=(9, 4)).astype(np.float32), "z": np.ones((9, 3), np.float32)}

    def error(labels: Any, outputs: Any) -> float:
        return np.abs(outputs - labels).mean()

    with amp.Trainer(SGD(0.1).minimize(amp.losses.huber(model_of(MODEL), "y", "z"))) as trainer:
        found = trainer.evaluate(held, batch=5, metrics=error)
        outputs = trainer.session.evaluate(held, ["y"])["y"]
    assert type(found["eval_error"]) is float
    assert found["eval_error"] == pytest.approx(np.abs(outputs - 1).mean(), rel=1e-5)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a name": ("f1", TARGETS, "unknown metric; found 'f1'; expected accuracy, or a function"),
    "a number": (3, TARGETS, "metrics are names or functions; found an object of type int"),
    "twice": (["acc", "accuracy"], TARGETS, "two metrics have one name"),
    "no targets": ("accuracy", {}, "does not know the outputs and labels"),
    "no classes": (
        "accuracy",
        {"predictions": "y", "labels": "t"},
        "does not know the logits of classes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused(case: str) -> None:
    metrics, targets, message = REFUSED[case]
    with pytest.raises(OptionError, match=message):
        measures_of(metrics, targets)


def test_shapes_and_results_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match=r"found the shapes \[60, 5\] and \[59\]"):
        Compared(TARGETS).of({"y": LOGITS}, {"t": LABELS[1:]})
    with pytest.raises(OptionError, match="metrics find no labels"):
        Compared(TARGETS).of({"y": LOGITS}, {"x": LABELS})
    with pytest.raises(OptionError, match="is not a number; found NoneType"):
        measured(lambda labels, logits: None, LOGITS, LABELS)
