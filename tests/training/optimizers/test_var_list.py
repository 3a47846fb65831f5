"""What gradients are taken with respect to: variables, lists of lists, and other values."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import Adam, GradientDescent
from amp_rewrite.training.graph.training_graph import GraphValue, training_graph, value
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
def model() -> ir.Model:
    return load(onnx.parser.parse_model(TWO_LAYERS))


@pytest.fixture
def loss(model: ir.Model) -> GraphValue:
    return value(model, "loss")


@pytest.mark.parametrize("given", ["name", "state", "value"])
def test_var_list_takes_names_states_and_values(
    model: ir.Model, loss: GraphValue, given: str
) -> None:
    graph = training_graph(model)
    reference: Any = {
        "name": "w2",
        "state": graph.variable("w2"),
        "value": value(model, "w2"),
    }[given]
    pairs = GradientDescent().compute_gradients(loss, var_list=[reference])
    assert [variable.name for _, variable in pairs] == ["w2"]


@pytest.mark.parametrize(
    "var_list",
    ["w2", ["w1", ["b1", ("w2",)]], {"b": "w1", "a": ["w2"]}, (name for name in ("w1", "w1"))],
    ids=["one", "lists in lists", "mapping", "generator"],
)
def test_minimize_takes_one_variable_and_lists_of_lists(loss: GraphValue, var_list: Any) -> None:
    expected = {"w2": ["w2"], str(["w1", ["b1", ("w2",)]]): ["w1", "b1", "w2"]}.get(str(var_list))
    if expected is None:
        expected = ["w2", "w1"] if isinstance(var_list, dict) else ["w1"]
    op = GradientDescent().minimize(loss, var_list=var_list)
    assert [name for name in op.updates if op.graph.states[name].trainable] == expected


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


@pytest.mark.parametrize("kind", ["value", "name"])
def test_a_value_that_is_no_variable_cannot_be_updated(loss: GraphValue, kind: str) -> None:
    optimizer = Adam()
    [(gradient, target)] = optimizer.compute_gradients(loss, [loss.graph.value("h")])
    text = r"h: Trying to update a Tensor; .* expected a variable"
    with pytest.raises(NotImplementedError, match=text) as raised:
        optimizer.apply_gradients([(gradient, target if kind == "value" else "h")])
    assert isinstance(raised.value, AmpError)
    with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
        optimizer.minimize(loss, var_list="x")
