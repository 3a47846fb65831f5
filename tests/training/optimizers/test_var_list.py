"""What gradients are taken with respect to: variables, lists of lists, and other values."""

from typing import Any

import numpy as np
import onnx
import pytest

from amp_rewrite.graph.io.load import load
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.graph.training_graph import GraphValue, value
from amp_rewrite.training.session.training_session import TrainingSession

TWO_LAYERS = """<ir_version: 8, opset_import: ["": 17]>
forward (float[n, 3] x) => (float[n, 2] y, float loss)
<float[3, 4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] b1 = {1,0,1,0},
 float[4, 2] w2 = {1,2,3,4,5,6,7,8}> {
    h = MatMul(x, w1)
    a = Add(h, b1)
    y = MatMul(a, w2)
    s = Mul(y, y)
    loss = ReduceSum<keepdims=0>(s)
    whole = Cast<to=7>(loss)
}"""
X = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
W1 = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
W2 = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def loss() -> GraphValue:
    return value(load(onnx.parser.parse_model(TWO_LAYERS)), "loss")


@pytest.mark.parametrize(
    ("var_list", "message"),
    [
        (3, "var_list: not a variable; found an object of type int"),
        (["w1", [3]], "not a variable.*int"),
        ([b"w1"], "not a variable.*bytes"),
        ([None], "not a variable.*NoneType"),
    ],
)
def test_what_is_no_variable_is_a_type_error(loss: GraphValue, var_list: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        GradientDescent().minimize(loss, var_list=var_list)


def gradients() -> dict[str, np.ndarray]:
    """Return the gradient of the sum of squares of y with respect to values on the way."""
    hidden = X @ W1 + np.array([1, 0, 1, 0], np.float32)
    dy = 2 * hidden @ W2
    dh = dy @ W2.T
    one = np.ones((), np.float32)
    return {"y": dy, "a": dh, "h": dh, "x": dh @ W1.T, "w1": X.T @ dh, "loss": one}


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "loss scale"])
def test_gradients_with_respect_to_inputs_and_values_on_the_way(
    loss: GraphValue, scaled: bool
) -> None:
    optimizer = LossScaleOptimizer(GradientDescent(0.5)) if scaled else GradientDescent(0.5)
    expected = gradients()
    given: list[Any] = [loss.graph.value(n) if n in "yh" else n for n in expected]
    pairs = optimizer.compute_gradients(loss, given)
    assert [target.name for _, target in pairs] == list(expected)
    op = optimizer.apply_gradients([pair for pair in pairs if pair[1].name == "w1"])
    with TrainingSession(op) as session:
        found = session.run({"x": X}, [gradient.name for gradient, _ in pairs])
    for (gradient, _), (name, array) in zip(pairs, expected.items(), strict=True):
        np.testing.assert_allclose(found[gradient.name], array, rtol=1e-6, err_msg=name)
