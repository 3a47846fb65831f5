"""What is measured on held-out examples counts what the loss counts, whatever the batches are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import CLASSIFIER, model_of

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.loop.evaluation import Compared, measures_of
from amp_rewrite.optimizers import SGD

LOGITS = """<ir_version: 8, opset_import: ["": 17]>
    classifier (float[N, 4] x) => (float[N, 3] logits)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[3] b = {1, 0, 1}> {
        h = MatMul (x, w)
        logits = Add (h, b)
    }"""
IGNORED = -100
SIZE = 37
WEIGHTS = np.array([0.5, 2.0, 3.5], np.float32)


def share(labels: Any, logits: Any) -> float:
    """Return the share of the labels that are the first or the second of a row's logits."""
    return (np.argsort(-logits)[:, :2] == labels[:, None]).any(-1).mean()


METRICS = ["accuracy", share]


def data() -> dict[str, Any]:
    """Return examples most of whose labels are ignored, above all in the first ones."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, SIZE)
    ignored = random.random(SIZE) < np.linspace(0.95, 0.2, SIZE)
    x = random.normal(size=(SIZE, 4)).astype(np.float32)
    return {"x": x, "t": np.where(ignored, IGNORED, labels)}


def step(**options: Any) -> Any:
    loss = amp.losses.softmax_cross_entropy(model_of(LOGITS), "logits", "t", **options)
    return SGD(0.1).minimize(loss)


def logits_of(session: amp.TrainingSession) -> np.ndarray:
    found = session.evaluate(data(), ["logits"])
    return found["logits"].astype(np.float64)


def expected_loss(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted mean over the whole set of the labels that are not ignored."""
    kept = labels != IGNORED
    logits, labels = logits[kept], labels[kept]
    top = logits.max(-1)
    losses = np.log(np.exp(logits - top[:, None]).sum(-1)) + top
    losses -= np.take_along_axis(logits, labels[:, None], -1)[:, 0]
    return float((losses * weights[labels]).sum() / weights[labels].sum())


OPTIONS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "ignore_index": ({"ignore_index": IGNORED}, np.ones(3)),
    "and class weights": ({"ignore_index": IGNORED, "class_weights": WEIGHTS}, WEIGHTS),
}


@pytest.mark.parametrize("size", [SIZE, 5, 1])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_mean_is_that_of_the_whole_set_for_every_batch_size(name: str, size: int) -> None:
    options, weights = OPTIONS[name]
    with amp.Trainer(step(**options)) as trainer:
        found = trainer.evaluate(data(), batch=size, metrics=METRICS)
        logits = logits_of(trainer.session)
    labels = data()["t"]
    kept = labels != IGNORED
    loss = expected_loss(logits, labels, weights)
    right = logits.argmax(-1)[kept] == labels[kept]
    assert found["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert found["eval_accuracy"] == pytest.approx(right.mean())
    assert found["eval_share"] == pytest.approx(share(labels[kept], logits[kept]))
    assert found["eval_accuracy"] <= found["eval_share"] < 1


def exported(op: Any, folder: Path) -> Any:
    amp.save(amp.build_step(op), folder / "step.onnx")
    return folder / "step.onnx"


SOURCES: dict[str, Callable[[Any, Path], Any]] = {
    "a TrainOp": lambda op, folder: op,
    "a file": exported,
    "a step in float16": lambda op, folder: amp.build_step(op, precision="float16"),
}


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("kind", SOURCES)
def test_a_step_says_what_its_loss_compares(kind: str, tmp_path: Path) -> None:
    op = step(ignore_index=IGNORED, class_weights=WEIGHTS)
    with amp.Trainer(SOURCES[kind](op, tmp_path)) as trainer:
        targets = trainer.session.info.targets
        assert targets == {
            "logits": "logits", "labels": "t", "ignore_index": IGNORED,
            "denominator": "loss_denominator",
        }  # fmt: skip
        one, many = trainer.evaluate(data(), batch=SIZE), trainer.evaluate(data(), batch=4)
    assert one == pytest.approx(many, rel=1e-3)
    assert set(one) == {"eval_loss", "eval_accuracy"}


def test_what_is_said_of_a_step_goes_before_what_its_loss_says() -> None:
    model = amp.build_step(step(), targets={"labels": "t", "ignore_index": 2})
    with amp.TrainingSession(model) as session:
        assert session.info.targets == {"logits": "logits", "labels": "t", "ignore_index": 2}


def test_a_loss_of_the_model_itself_says_what_it_ignores() -> None:
    own = CLASSIFIER.replace("Loss (", f"Loss <ignore_index: int = {IGNORED}> (")
    with amp.Trainer(SGD(0.1).minimize(amp.value(model_of(own), "loss"))) as trainer:
        one, many = trainer.evaluate(data(), batch=SIZE), trainer.evaluate(data(), batch=25)
    assert one == pytest.approx(many)
    assert set(one) == {"eval_loss", "eval_accuracy"}


def test_nothing_is_measured_where_every_label_is_ignored() -> None:
    held = {**data(), "t": np.full(SIZE, IGNORED)}
    with amp.Trainer(step(ignore_index=IGNORED)) as trainer:
        found = trainer.evaluate(held, batch=5, metrics=METRICS)
    assert np.isnan(list(found.values())).all()


def test_a_loss_that_is_not_a_scalar_is_refused() -> None:
    with (
        amp.Trainer(step(reduction="none")) as trainer,
        pytest.raises(AmpError, match="the loss is not a scalar"),
    ):
        trainer.evaluate({**data(), "t": np.ones(SIZE, np.int64)})


RNG = np.random.default_rng(5)
SCORES = RNG.normal(size=(60, 5)).astype(np.float32)
CLASSES = RNG.integers(0, 5, 60)
NAMES = {"logits": "y", "labels": "t"}
PREDICTOR = """<ir_version: 8, opset_import: ["": 17]>
    m (float[N, 4] x) => (float[N, 3] y)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul (x, w) }"""


def measured(metrics: Any, y: Any, t: Any, **targets: Any) -> list[float]:
    """Return metrics over batches of 7."""
    measures = measures_of(metrics, NAMES | targets)
    compared = Compared(NAMES | targets)
    for k in range(0, len(y), 7):
        labels, outputs = compared.of({"y": y[k : k + 7]}, {"t": t[k : k + 7]})
        for measure in measures:
            measure.take(labels, outputs)
    return [measure.result() for measure in measures]


def test_functions_of_scikit_learn_are_metrics() -> None:
    sk: Any = pytest.importorskip("sklearn.metrics")
    labels = np.where(RNG.random(60) < 0.5, -1, CLASSES)
    kept = labels >= 0
    top_3 = partial(sk.top_k_accuracy_score, k=3, labels=range(5))

    def f1(labels: Any, logits: Any) -> float:
        return sk.f1_score(labels, logits.argmax(-1), average="macro")

    found = measured(["loss", "accuracy", top_3, f1], SCORES, labels, ignore_index=-1)
    assert found == pytest.approx(
        [
            sk.accuracy_score(labels[kept], SCORES[kept].argmax(-1)),
            top_3(labels[kept], SCORES[kept]),
            f1(labels[kept], SCORES[kept]),
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
    tensor = pytest.importorskip("onnxruntime").OrtValue.ortvalue_from_numpy(CLASSES)
    labels, _ = Compared(NAMES).of({"y": SCORES}, {"t": tensor})
    np.testing.assert_array_equal(labels, CLASSES)


def test_a_function_gets_the_predictions_that_the_loss_compares() -> None:
    held = {"x": RNG.normal(size=(9, 4)).astype(np.float32), "z": np.ones((9, 3), np.float32)}

    def error(labels: Any, outputs: Any) -> float:
        return np.abs(outputs - labels).mean()

    with amp.Trainer(SGD(0.1).minimize(amp.losses.huber(model_of(PREDICTOR), "y", "z"))) as trainer:
        found = trainer.evaluate(held, batch=5, metrics=error)
        outputs = trainer.session.evaluate(held, ["y"])["y"]
    assert type(found["eval_error"]) is float
    assert found["eval_error"] == pytest.approx(np.abs(outputs - 1).mean(), rel=1e-5)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a name": ("f1", NAMES, "unknown metric; found 'f1'; expected accuracy, or a function"),
    "a number": (3, NAMES, "metrics are names or functions; found an object of type int"),
    "twice": (["acc", "accuracy"], NAMES, "two metrics have one name"),
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
        Compared(NAMES).of({"y": SCORES}, {"t": CLASSES[1:]})
    with pytest.raises(OptionError, match="metrics find no labels"):
        Compared(NAMES).of({"y": SCORES}, {"x": CLASSES})
    with pytest.raises(OptionError, match="is not a number; found NoneType"):
        measured(lambda labels, logits: None, SCORES, CLASSES)
