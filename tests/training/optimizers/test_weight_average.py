"""Averages of the weights: beside them, as states, for evaluation and export."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, OptimizerTypeError, OptimizerValueError
from amp_rewrite.optimizers import (
    Adam,
    AdamW,
    GradientDescent,
    Optimizer,
    ParameterGroups,
    WeightAverage,
)

Arrays = dict[str, np.ndarray]
STEPS = 12


def network() -> ir.Model:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x) => (float[n, 2] y) {
        p = MatMul(x, w)
        y = Add(p, b)
    }""")
    random = np.random.default_rng(1)
    for name, shape in {"w": (3, 2), "b": (2,)}.items():
        array = random.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


def batch(step: int) -> Arrays:
    random = np.random.default_rng(step)
    return {
        "x": random.normal(size=(4, 3)).astype(np.float32),
        "t": random.normal(size=(4, 2)).astype(np.float32),
    }


def opened(optimizer: Optimizer, **arguments: Any) -> amp.TrainingSession:
    loss = amp.losses.mean_squared_error(network(), "y", "t")
    return amp.TrainingSession(optimizer.minimize(loss, **arguments))


def exponential(weights: list[Arrays], decay: float, warm_up: bool, start: int) -> Arrays:
    """Return the average after all steps; weights[0] are those before the first."""
    average, n = dict(weights[0]), 0
    for step, now in enumerate(weights[1:], 1):
        used = min(decay, (1 + n) / (10 + n)) if warm_up else decay
        share = 1 - used if step > start else 1.0
        average = {k: a + share * (now[k] - a) for k, a in average.items()}
        n += step > start
    return average


def equal(weights: list[Arrays], start: int, every: int) -> Arrays:
    """Return the mean of the weights after the steps that count."""
    steps = [s for s in range(start + 1, len(weights)) if (s - start) % every == 0]
    return {k: np.mean([weights[s][k] for s in steps], axis=0) for k in weights[0]}


CASES = {
    "warm-up": ({"decay": 0.9}, lambda w: exponential(w, 0.9, True, 0)),
    "none": ({"decay": 0.9, "warm_up": False}, lambda w: exponential(w, 0.9, False, 0)),
    "late": ({"decay": 0.5, "start": 4}, lambda w: exponential(w, 0.5, True, 4)),
    "all alike": ({"decay": None}, lambda w: equal(w, 0, 1)),
    "epochs": ({"decay": None, "start": 3, "every": 3}, lambda w: equal(w, 3, 3)),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES)
def test_averages_follow_the_formula_and_change_no_weight(case: str) -> None:
    arguments, reference = CASES[case]
    weights = []
    with (
        opened(Adam(0.1)) as plain,
        opened(WeightAverage(Adam(0.1), **arguments)) as session,
    ):
        weights.append(session.state_dict())
        for step in range(STEPS):
            plain.run(batch(step))
            session.run(batch(step))
            weights.append(session.state_dict())
        for name, array in plain.state_dict().items():
            np.testing.assert_array_equal(array, weights[-1][name])
    expected = reference([{k: w[k].astype(float) for k in ("w", "b")} for w in weights])
    for name, array in expected.items():
        np.testing.assert_allclose(weights[-1][f"{name}/average"], array, rtol=1e-5, atol=1e-6)


def test_averages_are_evaluated_and_exported() -> None:
    feeds = batch(99)
    with opened(WeightAverage(Adam(0.1), 0.5)) as session:
        for step in range(STEPS):
            session.run(batch(step))
        states = session.state_dict()
        found = session.evaluate(feeds, "y", averaged=True)["y"]
        plain = session.evaluate(feeds, "y")["y"]
        session.run(batch(STEPS))  # the other set of states
        again = session.evaluate(feeds, "y", averaged=True)["y"]
        now = session.state_dict()
        exported = session.export(averaged=True).graph.initializers
    average, weights = ({k: states[k + end] for k in ("w", "b")} for end in ("/average", ""))
    np.testing.assert_allclose(found, feeds["x"] @ average["w"] + average["b"], rtol=1e-5)
    np.testing.assert_allclose(plain, feeds["x"] @ weights["w"] + weights["b"], rtol=1e-5)
    np.testing.assert_allclose(again, feeds["x"] @ now["w/average"] + now["b/average"], rtol=1e-5)
    for name in ("w", "b"):
        tensor = exported[name].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), now[f"{name}/average"])


def scaled(mode: str, inner: Optimizer) -> Optimizer:
    return amp.LossScaleOptimizer(inner, amp.DynamicLossScale(8.0), conditional=mode)


@pytest.mark.share(2)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_skipped_step_averages_nothing(mode: str, accumulate: int) -> None:
    groups = ParameterGroups(AdamW(0.1), no_decay="bias")
    with opened(scaled(mode, WeightAverage(groups, 0.9)), accumulate=accumulate) as session:
        for step in range(accumulate):
            session.run(batch(step))
        before = session.state_dict()
        for step in range(accumulate):
            session.run({**batch(step), "t": np.full((4, 2), np.inf, np.float32)})
        after = session.state_dict()
    assert before["averaged"] == after["averaged"] == 1
    changed = {n for n in after if not np.array_equal(before[n], after[n])}
    assert all(name.startswith("loss_scale/") for name in changed)
    assert changed


def test_averages_count_updates_of_accumulated_gradients() -> None:
    with opened(WeightAverage(GradientDescent(0.1), None), accumulate=3) as session:
        weights = []
        for step in range(9):
            session.run(batch(step))
            weights.append(session.state_dict()["w"])
        found = session.state_dict()["w/average"]
    np.testing.assert_allclose(found, np.mean(weights[2::3], axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"decay": 1.0}, OptimizerValueError, "impossible decay"),
        ({"decay": "0.9"}, OptimizerTypeError, "must be a number"),
        ({"start": -1}, OptimizerValueError, "impossible start"),
        ({"every": 0}, OptimizerValueError, "impossible every"),
        ({"every": 1.5}, OptimizerTypeError, "every must be an integer"),
        ({"optimizer": amp.LossScaleOptimizer(Adam())}, OptimizerValueError, "put the LossScale"),
        ({"optimizer": "adam"}, OptimizerTypeError, "not an optimizer"),
    ],
)
def test_impossible_averages_are_refused(
    arguments: dict[str, Any], error: type[AmpError], message: str
) -> None:
    given = {"optimizer": Adam(), **arguments}
    with pytest.raises(error, match=message):
        WeightAverage(**given)


@pytest.mark.parametrize("trained", [0, 3])
def test_averages_that_a_checkpoint_lacks_begin_at_its_weights(tmp_path: Any, trained: int) -> None:
    path = tmp_path / "plain.safetensors"
    with opened(Adam(0.1)) as plain:
        for step in range(4):
            plain.run(batch(step))
        plain.save(path)
        weights, loss = plain.state_dict(), plain.evaluate(batch(9))["loss"]
    with opened(WeightAverage(Adam(0.1), 0.9)) as session:
        for step in range(trained):
            session.run(batch(step + 20))
        session.restore(path, strict=False)
        assert session.evaluate(batch(9), averaged=True)["loss"] == loss
        assert session.restored is not None
        assert set(session.restored.begun) == {"w/average", "b/average", "averaged"}
        assert not session.restored.kept
        session.run(batch(10))
        after = session.state_dict()
        share = 1 - 1 / 10  # that of the first step of a warm-up
        expected = weights["w"] + share * (after["w"] - weights["w"])
        np.testing.assert_allclose(after["w/average"], expected, rtol=1e-5)
