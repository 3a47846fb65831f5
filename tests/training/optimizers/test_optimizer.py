"""The base class: arguments, errors, slots, steps, and the members that Keras has."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite import optimizers
from amp_rewrite.graph.io.load import load
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, Optimizer
from amp_rewrite.training.graph.training_graph import GraphValue, training_graph, value
from amp_rewrite.training.session.training_session import TrainingSession

TWO_LAYERS = """<ir_version: 8, opset_import: ["": 17]>
forward (float[n, 3] x) => (float[n, 2] y, float loss)
<float[3, 4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] b1 = {1,0,1,0},
 float[4, 2] w2 = {1,2,3,4,5,6,7,8}, float[2] unused = {1,1}, int64[1] axes = {0}> {
    h = MatMul(x, w1)
    a = Add(h, b1)
    y = MatMul(a, w2)
    s = Mul(y, y)
    loss = ReduceMean<keepdims=0>(s)
    whole = Cast<to=7>(loss)
    other = ReduceSum<keepdims=0>(unused, axes)
    rounded = Round(loss)
}"""
X = np.array([[1, 2, 3], [0, 1, 0]], np.float32)


@pytest.fixture
def model() -> ir.Model:
    return load(onnx.parser.parse_model(TWO_LAYERS))


@pytest.fixture
def loss(model: ir.Model) -> GraphValue:
    return value(model, "loss")


def steps(train_op: optimizers.TrainOp, count: int = 1) -> dict[str, np.ndarray]:
    with TrainingSession(train_op) as session:
        for _ in range(count):
            session.run({"x": X})
        return session.state_dict()


def test_a_variable_given_twice_is_refused(loss: GraphValue) -> None:
    pairs = GradientDescent().compute_gradients(loss, var_list=["w1"])
    with pytest.raises(ValueError, match="given twice"):
        GradientDescent().apply_gradients(pairs * 2)


def test_a_global_step_may_be_an_initializer_of_the_model(loss: GraphValue) -> None:
    graph = loss.graph
    counted = graph.state("so_far", np.array(7, np.int64), "global_step")
    train_op = GradientDescent().minimize(loss, global_step=value(graph.model, "so_far"))
    assert train_op.global_step == counted.name
    assert steps(train_op, 2)["so_far"] == 9
    assert "global_step" not in train_op.updates


def test_a_global_step_of_another_model_is_refused(loss: GraphValue) -> None:
    other = training_graph(load(onnx.parser.parse_model(TWO_LAYERS)))
    for given in (other.global_step(), other.value("w1")):
        with pytest.raises(ValueError, match=r"of another model|of this model"):
            GradientDescent().minimize(loss, global_step=given)


HYPERPARAMETERS: dict[str, Callable[[], Optimizer]] = {
    "beta1": lambda: Adam(beta1=1.0),
    "epsilon": lambda: Adam(epsilon=0.0),
    "weight_decay": lambda: optimizers.AdamW(weight_decay=float("nan")),
    "initial_accumulator_value": lambda: optimizers.Adagrad(initial_accumulator_value=-1.0),
}


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_hyperparameters_out_of_range_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"impossible {name}"):
        HYPERPARAMETERS[name]()


def test_a_hyperparameter_that_is_set_later_is_checked_and_makes_another_rule() -> None:
    optimizer = Adam(0.1)
    before = optimizer.rule
    optimizer.beta1 = 0.5
    assert (optimizer.beta1, optimizer.get_config()["beta1"]) == (0.5, 0.5)
    assert optimizer.rule is not before
    with pytest.raises(ValueError, match="impossible beta1"):
        optimizer.beta1 = 1.0
    assert optimizer.beta1 == 0.5


CONFIGURED: list[Optimizer] = [
    GradientDescent(0.5, name="G", clipnorm=2.0),
    Momentum(0.5, 0.25, True, name="M"),
    optimizers.Adagrad(0.5, 0.25, 1e-3, name="A"),
    optimizers.Adadelta(0.5, 0.25, 1e-3, name="D"),
    optimizers.RMSProp(0.5, 0.25, 0.125, 1e-3, True, True, "R"),
    Adam(0.5, 0.25, 0.125, 1e-3, True, "Ad", lazy=True, clipvalue=3.0),
    optimizers.AdamW(0.5, 0.25, 0.125, 1e-3, 0.75, name="W", global_clipnorm=1.0),
    optimizers.LAMB(0.5, 0.25, 0.125, 1e-3, 0.75, name="L"),
    Adam(optimizers.LinearWarmUp(optimizers.CosineSchedule(0.5, 100, 0.25), 10, 0.125)),
]


@pytest.mark.parametrize("optimizer", CONFIGURED, ids=lambda o: type(o).__name__)
def test_a_configuration_makes_an_equal_optimizer(optimizer: Optimizer) -> None:
    config = optimizer.get_config()
    again = type(optimizer).from_config(config)
    assert again.get_config() == config
    assert config["name"] == optimizer.get_name()
    named = optimizers.get({"class_name": type(optimizer).__name__, "config": config})
    assert type(named) is type(optimizer)
    assert named.get_config() == config
