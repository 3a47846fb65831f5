"""Several optimizers in one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.io.load import load
from amp_rewrite.loss_scaling import DynamicLossScale, LossScaleOptimizer
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, TrainOp, group
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3] x) => (float loss)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> {
    h = MatMul(x, w)
    y = Add(h, b)
    s = Mul(y, y)
    loss = ReduceMean<keepdims=0>(s)
}"""
X = {"x": np.array([[1, 2, 3], [0, 1, 0]], np.float32)}


def model() -> ir.Model:
    return load(onnx.parser.parse_model(MODEL))


def alone(optimizer: Adam | GradientDescent, name: str) -> np.ndarray:
    with TrainingSession(optimizer.minimize(value(model(), "loss"), var_list=[name])) as session:
        session.run(X)
        return session.state_dict()[name]


def test_each_variable_gets_the_step_of_its_optimizer() -> None:
    loss = value(model(), "loss")
    slow, fast = GradientDescent(0.125), Adam(0.5)
    both = group(slow.minimize(loss, var_list=["w"]), fast.minimize(loss, var_list=["b"]))
    whole = GradientDescent().minimize(value(model(), "loss"))
    with TrainingSession(both) as session, TrainingSession(whole) as other:
        found = session.run(X, ["loss", "gradient_norm", "learning_rate"])
        expected = other.run(X, ["loss", "gradient_norm"])
        assert session.global_step == 1
        state = session.state_dict()
        fast.learning_rate = 0.0
        session.run(X)
        after = session.state_dict()
    np.testing.assert_array_equal(state["w"], alone(GradientDescent(0.125), "w"))
    np.testing.assert_array_equal(state["b"], alone(Adam(0.5), "b"))
    assert found["loss"] == expected["loss"]
    np.testing.assert_allclose(found["gradient_norm"], expected["gradient_norm"], rtol=1e-6)
    assert found["learning_rate"] == 0.125
    np.testing.assert_array_equal(after["b"], state["b"])
    assert (after["w"] != state["w"]).any()


def test_steps_that_do_not_go_together_are_refused() -> None:
    loss = value(model(), "loss")
    first = GradientDescent().minimize(loss, var_list=["w"])
    with pytest.raises(ValueError, match=r"w: two steps update one state; .* var_list"):
        group(first, Adam().minimize(loss))
    with pytest.raises(ValueError, match="different models"):
        group(first, GradientDescent().minimize(value(model(), "loss")))
    scaled = LossScaleOptimizer(Adam(), "dynamic").minimize(loss, var_list=["b"])
    with pytest.raises(ValueError, match=r"different loss scales.*found None and .*; expected one"):
        group(first, scaled)
    with pytest.raises(ValueError, match="no steps to group"):
        group()
    with pytest.raises(TypeError, match="not a training step; found int"):
        group(first, 3)  # type: ignore[arg-type]


JOINT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] p, float[3] q) => (float loss) <float[2] a = {1, 2}, float[3] b = {3, 4, 5}> {
    x = Mul(a, p)
    y = Mul(b, q)
    s = ReduceSum<keepdims=0>(x)
    t = ReduceSum<keepdims=0>(y)
    loss = Add(s, t)
}"""


def loss_of() -> amp.GraphValue:
    return amp.value(amp.load(onnx.parser.parse_model(JOINT)), "loss")


def feeds(p: float = 1.0, q: float = 1.0) -> dict[str, np.ndarray]:
    return {"p": np.full(2, p, np.float32), "q": np.full(3, q, np.float32)}


def scale() -> DynamicLossScale:
    return DynamicLossScale(8.0, increment_period=2)


def two(mode: str, scale: Any) -> tuple[TrainOp, TrainOp]:
    loss = loss_of()
    slow = LossScaleOptimizer(Momentum(0.5), scale, conditional=mode)
    fast = LossScaleOptimizer(Adam(0.25), scale, conditional=mode)
    return slow.minimize(loss, var_list="a"), fast.minimize(loss, var_list="b")


STEPS = [(1, 1), (np.inf, 1), (1, 1), (1, np.nan), (2, 3), (1, 1), (np.nan, np.inf), (1, 2)]


@pytest.mark.share(2)
@pytest.mark.parametrize("mode", ["if", "select"])
@pytest.mark.parametrize("fetches", [["grads_finite"], ["grads_finite", "gradient_norm"]])
def test_gradients_of_either_that_are_not_finite_skip_both(mode: str, fetches: list[str]) -> None:
    alone = LossScaleOptimizer(GradientDescent(0.5), scale(), conditional=mode)
    reference = alone.minimize(loss_of())
    with (
        amp.TrainingSession(group(*two(mode, scale()))) as session,
        amp.TrainingSession(reference) as other,
    ):
        for p, q in STEPS:
            before = session.state_dict()
            found, expected = session.run(feeds(p, q), fetches), other.run(feeds(p, q), fetches)
            after = session.state_dict()
            assert found["grads_finite"] == expected["grads_finite"] == np.isfinite(p + q)
            kept = {n for n in after if before[n].tobytes() == after[n].tobytes()}
            if not np.isfinite(p + q):
                assert kept >= {"a", "b", "a/Momentum", "b/Adam", "b/Adam_1", "global_step"}
            else:
                assert not kept & {"a", "b", "global_step"}
        for name, array in other.state_dict().items():
            if name.startswith("loss_scale/") or name == "global_step":
                assert session.state_dict()[name] == array, name


def test_one_loss_scale_has_one_state_in_a_model() -> None:
    shared = scale()
    first, second = LossScaleOptimizer(Adam(), shared), LossScaleOptimizer(Adam(), shared)
    loss = loss_of()
    ops = first.minimize(loss, var_list="a"), second.minimize(loss, var_list="b")
    names = [{n for n in op.updates if n.startswith("loss_scale/")} for op in ops]
    assert names[0] == names[1]
    with amp.TrainingSession(group(*ops)) as session:
        session.run(feeds(p=np.inf))
        assert first.current_loss_scale == second.current_loss_scale == shared.current == 4.0
