"""The seed of the backward pass, which `grad_loss` replaces."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.distributed import shard_context
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import GradientDescent, Optimizer, OptimizerWrapper
from amp_rewrite.training.graph.training_graph import GraphValue, value
from amp_rewrite.training.session.training_session import TrainingSession

MODEL = """<ir_version: 8, opset_import: ["": 17]>
forward (float[n, 3] x, int64 whole, double[] wide, float[3] three) => (float loss)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
    y = MatMul(x, w)
    s = Mul(y, y)
    losses = ReduceSum<keepdims=0>(s)
    loss = Identity(losses)
}"""
X = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
WRAPS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "plain": lambda o: o,
    "wrapped": OptimizerWrapper,
    "loss scale": amp.LossScaleOptimizer,
    "shards": amp.CrossShardOptimizer,
    "sum over shards": lambda o: amp.CrossShardOptimizer(o, "sum"),
    "both": lambda o: amp.LossScaleOptimizer(amp.CrossShardOptimizer(o)),
}


@pytest.fixture(autouse=True)
def context():
    """Build inside a shard context, so that there is no warning."""
    with shard_context():
        yield


def loss_of() -> GraphValue:
    return value(load(onnx.parser.parse_model(MODEL)), "loss")


def trained(optimizer: Optimizer, loss: GraphValue, **options: Any) -> np.ndarray:
    with TrainingSession(optimizer.minimize(loss, **options)) as session:
        session.run({"x": X, "three": np.ones(3, np.float32), "wide": np.array(2.0)})
        return session.state_dict()["w"]


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_grad_loss_takes_the_place_of_ones(wrap: Callable[[Optimizer], Optimizer]) -> None:
    plain = trained(GradientDescent(0.125), loss_of())
    loss = loss_of()
    half = trained(wrap(GradientDescent(0.0625)), loss, grad_loss=loss.graph.value("wide"))
    np.testing.assert_allclose(plain, half, rtol=1e-5)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (1.0, TypeError, "grad_loss must be a value; found an object of type float"),
        ("w", TypeError, "grad_loss must be a value; found an object of type str"),
        ("whole", ValueError, "Invalid type int64 for grad_loss 'whole'"),
        ("three", ValueError, r"three: grad_loss has another shape than the loss; found \[3\]"),
        ("other model", ValueError, "loss: grad_loss is a value of another model"),
    ],
)
def test_what_is_no_gradient_of_the_loss_is_refused_by_its_name(
    wrap: Callable[[Optimizer], Optimizer], given: Any, kind: type[Exception], message: str
) -> None:
    loss = loss_of()
    if given in ("whole", "three"):
        given = loss.graph.value(given)
    elif given == "other model":
        given = loss_of()
    with pytest.raises(kind, match=message) as raised:
        wrap(GradientDescent()).compute_gradients(loss, grad_loss=given)
    assert isinstance(raised.value, AmpError)


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
VAR_X = np.array([[1, 2, 3], [0, 1, 0]], np.float32)
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
    hidden = VAR_X @ W1 + np.array([1, 0, 1, 0], np.float32)
    dy = 2 * hidden @ W2
    dh = dy @ W2.T
    one = np.ones((), np.float32)
    return {"y": dy, "a": dh, "h": dh, "x": dh @ W1.T, "w1": VAR_X.T @ dh, "loss": one}


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
        found = session.run({"x": VAR_X}, [gradient.name for gradient, _ in pairs])
    for (gradient, _), (name, array) in zip(pairs, expected.items(), strict=True):
        np.testing.assert_allclose(found[gradient.name], array, rtol=1e-6, err_msg=name)
