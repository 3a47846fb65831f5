"""Variables in low types: what is kept of small updates, and how training ends."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import train_models
from digits import digits

import amp_rewrite as amp
from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.graph.io.load import load
from amp_rewrite.loop.epoch_loop import train
from amp_rewrite.loop.evaluation import evaluate
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.optimizers import Adam, GradientDescent, ParameterGroups
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.random_numbers import RandomNumbers
from amp_rewrite.training.optimizers.stored_states import stochastic, uniform

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
STEPS = 200


def after_small_steps(model: Any, optimizer: Any, feeds: Any) -> dict[str, np.ndarray]:
    """Return the states after steps each of which is a tenth of what bfloat16 tells apart."""
    amp.store_weights(model, "w", "bfloat16")
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        for _ in range(STEPS):
            session.run(feeds)
        return session.state_dict()


@pytest.mark.parametrize(
    ("rounding", "expected", "tolerance"),
    [("nearest", 1.0, 0.0), ("stochastic", 1.2, 0.003), ("compensated", 1.2, 0.005)],
)
def test_small_updates_are_lost_unless_rounding_keeps_them(
    dense_model: Any, rounding: str, expected: float, tolerance: float
) -> None:
    feeds = {"g": np.full((64, 64), -1.0, np.float32)}
    optimizer = GradientDescent(0.001, rounding=rounding)
    states = after_small_steps(dense_model(np.ones((64, 64), np.float32)), optimizer, feeds)
    assert states["w"].dtype == BFLOAT16
    mean = states["w"].astype(np.float64).mean()
    assert mean == pytest.approx(expected, abs=tolerance)
    if rounding == "compensated":
        lost = states["w/GradientDescent"].astype(np.float64)
        np.testing.assert_allclose(states["w"].astype(np.float64) + lost, 1.2, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "compensated"])
def test_a_sparse_gradient_changes_its_rows_alone(sparse_model: Any, rounding: str) -> None:
    model = sparse_model(np.ones((5, 64), np.float32))
    feeds = {"g": np.full((3, 64), -1.0, np.float32), "ids": np.array([1, 3, 3])}
    states = after_small_steps(model, GradientDescent(0.001, rounding=rounding), feeds)
    rows = states["w"].astype(np.float64).mean(1)
    np.testing.assert_array_equal(rows[[0, 2, 4]], 1.0)
    if rounding != "nearest":
        np.testing.assert_allclose(rows[[1, 3]], [1.2, 1.4], rtol=0, atol=0.01)


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_a_skipped_step_changes_no_low_state(conditional: str, dense_model: Any) -> None:
    model = dense_model(np.ones((8, 8), np.float32))
    amp.store_weights(model, "w", "bfloat16")
    inner = Adam(0.01, rounding="stochastic")
    scaled = amp.LossScaleOptimizer(inner, "dynamic", conditional=conditional)
    op = scaled.minimize(amp.value(model, "loss"))
    with amp.TrainingSession(op) as session:
        session.run({"g": np.ones((8, 8), np.float32)})
        before = session.state_dict()
        session.run({"g": np.full((8, 8), np.inf, np.float32)})
        after = session.state_dict()
    for name in before:
        if not name.startswith("loss_scale/"):
            np.testing.assert_array_equal(after[name], before[name])


def test_groups_and_configurations_know_the_option() -> None:
    optimizer = Adam(0.1, rounding="stochastic")
    config = json.loads(json.dumps(optimizer.get_config()))
    assert config["rounding"] == "stochastic"
    assert Adam.from_config(config).get_config() == optimizer.get_config()
    groups = ParameterGroups(optimizer, [{"variables": "w", "rate_multiplier": 0.1}])
    assert groups.members["group_1"].rounding == "stochastic"


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(OptimizerValueError, match="unknown rounding; found 'up'; expected"):
        Adam(rounding="up")


WAYS = {
    "masters": (None, "nearest"),
    "stochastic": ("bfloat16", "stochastic"),
    "compensated": ("bfloat16", "compensated"),
}


def accuracy_on_digits(way: str) -> float:
    dtype, rounding = WAYS[way]
    data, held = digits()
    model = load(train_models.digits_cnn())
    if dtype:
        amp.store_weights(model, "*", dtype)
    optimizer = Adam(1e-3, rounding=rounding)
    op = optimizer.minimize(amp.value(model, "loss"))
    step = amp.build_step(op, targets={"logits": "logits", "labels": "t"})
    with amp.TrainingSession(step, threads=1) as session:
        train(session, data, Plan(epochs=4, batch=64))
        return evaluate(session, held, 128)["eval_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stochastic", "compensated"])
def test_digits_are_recognised_as_with_masters(way: str) -> None:
    assert accuracy_on_digits(way) >= accuracy_on_digits("masters") - 0.01


def loss_on_text(way: str) -> float:
    dtype, rounding = WAYS[way]
    numbers, vocabulary = train_models.text()
    model = load(train_models.transformer(len(vocabulary), 64))
    if dtype:
        amp.store_weights(model, "*", dtype)
    optimizer = Adam(1e-3, rounding=rounding)
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        losses = [
            float(session.run(train_models.text_batch(numbers, i, 8, 64))["loss"])
            for i in range(300)
        ]
    return float(np.mean(losses[-20:]))


@pytest.mark.slow
def test_a_transformer_learns_a_text_as_with_masters() -> None:
    masters = loss_on_text("masters")
    assert loss_on_text("stochastic") == pytest.approx(masters, rel=0.01)
    assert loss_on_text("compensated") == pytest.approx(masters, rel=0.01)


KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MANY = 20_000


@pytest.fixture(scope="module", params=KINDS)
def rounding(request):
    """Return a type, and the runtime's rounding to it, in float32."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x, int64 step) => () {}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    x, step = model.graph.inputs
    b = Builder(model)
    low = ir.DataType[request.param.upper()]
    result = stochastic(b, x, low, uniform(b, RandomNumbers(b, step), 0, x))
    model.graph.outputs.append(b.cast(result, ir.DataType.FLOAT))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())

    def run(x: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {"x": x, "step": np.array(5)})[0])

    return KINDS[request.param], run


@pytest.mark.parametrize(
    "number", [1.001, -1.003, 0.9999, 1.0001, 255.9, 256.3, 3.0519e-5, -1e-5, 60010.0]
)
def test_the_mean_is_the_number_and_both_results_are_its_neighbours(rounding, number) -> None:
    kind, run = rounding
    x = np.float32(number)
    found = run(np.full(MANY, x, np.float32))
    nearest = np.float32(x.astype(kind))
    up, down = (np.nextafter(x.astype(kind), kind.type(end)) for end in (np.inf, -np.inf))
    expected = sorted({float(nearest), float(up if nearest < x else down)})
    assert np.unique(found).tolist() == expected
    deviation = (expected[1] - expected[0]) / 2 / MANY**0.5
    assert abs(found.astype(np.float64).mean() - float(x)) < 5 * deviation


def test_every_number_of_the_type_stays_as_it_is(rounding) -> None:
    kind, run = rounding
    every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    if kind == KINDS["bfloat16"]:  # smaller ones are subnormal in float32, which a CPU may flush
        every = every[~(np.abs(every) < np.finfo(np.float32).smallest_normal)]
    np.testing.assert_array_equal(run(every), every)


def test_what_is_nearer_to_a_finite_number_does_not_overflow(rounding) -> None:
    kind, run = rounding
    largest = float(ml_dtypes.finfo(kind).max)
    beyond = np.float32(largest * (1 + float(ml_dtypes.finfo(kind).eps) / 8))
    np.testing.assert_array_equal(run(np.full(100, beyond)), np.float32(largest))
