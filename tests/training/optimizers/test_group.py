"""Several optimizers in one step."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.graph.io.load import load
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import Adam, GradientDescent, group
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
    other = LossScaleOptimizer(GradientDescent(), "dynamic").minimize(loss, var_list=["w"])
    with pytest.raises(ValueError, match=r"steps with different loss scales .*give it to each"):
        group(scaled, other)
    with pytest.raises(ValueError, match="no steps to group"):
        group()
    with pytest.raises(TypeError, match="not a training step; found int"):
        group(first, 3)  # type: ignore[arg-type]
