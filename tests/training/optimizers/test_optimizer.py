"""The base class: arguments, errors, slots, steps, and the members that Keras has."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from amp_rewrite import optimizers
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.optimizers import Adam, GradientDescent, IndexedSlices, Momentum, Optimizer
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


def test_an_optimizer_needs_a_name() -> None:
    for make in (lambda: Optimizer(False, ""), lambda: Adam(name="")):
        with pytest.raises(ValueError, match="Must specify the optimizer name"):
            make()
    assert Optimizer(False, "mine").get_name() == "mine"


def test_variables_are_the_float_initializers_that_the_loss_depends_on(loss: GraphValue) -> None:
    pairs = GradientDescent().compute_gradients(loss)
    assert [variable.name for _, variable in pairs] == ["w1", "b1", "w2"]
    assert all(isinstance(gradient, GraphValue) for gradient, _ in pairs)


def test_a_step_holds_no_states_of_another_optimizer_on_its_model(loss: GraphValue) -> None:
    first = Adam(0.5).minimize(loss, var_list=["w1"])
    other = GradientDescent(0.25)
    second = other.minimize(loss, var_list=["w2"])
    assert set(steps(first)) >= {"w1", "w1/Adam", "learning_rate"}
    assert set(steps(second)) == {"w2", "global_step", "learning_rate_1"}
    with TrainingSession(second) as session:
        session.learning_rate = 0.125
        assert (session.learning_rate, other.learning_rate) == (0.125, 0.125)


def test_a_variable_that_the_loss_does_not_depend_on_has_no_gradient_and_stays(
    loss: GraphValue,
) -> None:
    optimizer = GradientDescent(0.5)
    pairs = optimizer.compute_gradients(loss, var_list=["unused", "w2"])
    assert pairs[0][0] is None
    train_op = optimizer.apply_gradients(pairs)
    assert set(train_op.updates) == {"w2", "global_step"}


COMPUTE_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "gate": ({"gate_gradients": 3}, "gate_gradients must be one of.*Not 3"),
    "aggregation": ({"aggregation_method": 9}, "Invalid aggregation_method specified 9"),
    "no variables": ({"var_list": []}, "No variables to optimize."),
    "integers": ({"var_list": ["axes"]}, "Invalid type int64 for variable 'axes'"),
}


@pytest.mark.parametrize("case", COMPUTE_ERRORS)
def test_impossible_arguments_of_compute_gradients_are_value_errors(
    loss: GraphValue, case: str
) -> None:
    arguments, message = COMPUTE_ERRORS[case]
    with pytest.raises(ValueError, match=message) as raised:
        GradientDescent().compute_gradients(loss, **arguments)
    assert isinstance(raised.value, AmpError)


def test_a_loss_that_no_variable_reaches_is_refused(model: ir.Model) -> None:
    with pytest.raises(ValueError, match=r"No variables to optimize.*initializer"):
        GradientDescent().minimize(value(model, "x"))


def test_a_loss_without_gradients_is_refused_with_variables_and_loss(model: ir.Model) -> None:
    with pytest.raises(ValueError, match=r"No gradients.*\['w1', 'b1', 'w2'\].*'rounded'"):
        GradientDescent().minimize(value(model, "rounded"))


def test_a_loss_that_is_no_value_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"loss must be a value.*amp_rewrite.value"):
        GradientDescent().minimize("loss")  # type: ignore[arg-type]


def test_a_callable_loss_is_called(loss: GraphValue) -> None:
    train_op = GradientDescent().minimize(lambda: loss * 2)
    assert "w1" in train_op.updates


@pytest.mark.parametrize("gate", [Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH])
def test_gates_do_not_change_the_step(model: ir.Model, gate: int) -> None:
    plain = steps(Adam().minimize(value(load(model), "loss")))
    gated = steps(Adam().minimize(value(model, "loss"), gate_gradients=gate))
    for name, expected in plain.items():
        np.testing.assert_array_equal(gated[name], expected)


def test_no_pairs_and_no_gradients_are_value_errors(model: ir.Model) -> None:
    variable = training_graph(model).variable("w1")
    with pytest.raises(ValueError, match=r"No variables provided\."):
        GradientDescent().apply_gradients([])
    with pytest.raises(ValueError, match=r"No gradients provided for any variable.*w1"):
        GradientDescent().apply_gradients([(None, variable)])


def test_a_variable_given_twice_is_refused(loss: GraphValue) -> None:
    pairs = GradientDescent().compute_gradients(loss, var_list=["w1"])
    with pytest.raises(ValueError, match="given twice"):
        GradientDescent().apply_gradients(pairs * 2)


def test_a_gradient_of_another_shape_is_refused(loss: GraphValue) -> None:
    graph = loss.graph
    one, scalar = graph.variable("w1"), loss
    with pytest.raises(
        ValueError, match=r"w1: a gradient has another shape .*found \[\]; expected"
    ):
        GradientDescent().apply_gradients([(scalar, one)])


def test_indexed_slices_of_the_users_own_are_applied(model: ir.Model, loss: GraphValue) -> None:
    graph = training_graph(model)
    b = graph.builder
    rows, ids = b.constant(np.ones((2, 2), np.float32)), b.constant([3, 3])
    shape = b.constant([4, 2])
    gradient = IndexedSlices(*(GraphValue(graph, v) for v in (rows, ids, shape)))  # type: ignore[arg-type]
    graph.loss = loss
    train_op = GradientDescent(1.0).apply_gradients([(gradient, "w2")])
    np.testing.assert_array_equal(steps(train_op)["w2"][3], [5, 6])


@pytest.mark.parametrize("given", [None, "step"])
def test_the_global_step_grows_by_one_with_each_step(loss: GraphValue, given: str | None) -> None:
    optimizer = GradientDescent()
    if given is not None:
        optimizer.iterations = given
    train_op = optimizer.minimize(loss)
    name = given or "global_step"
    assert train_op.global_step == name
    assert steps(train_op, 3)[name] == 3
    assert optimizer.iterations is not None
    assert optimizer.iterations.name == name


def test_a_global_step_may_be_an_initializer_of_the_model(loss: GraphValue) -> None:
    graph = loss.graph
    counted = graph.state("so_far", np.array(7, np.int64), "global_step")
    train_op = GradientDescent().minimize(loss, global_step=value(graph.model, "so_far"))
    assert train_op.global_step == counted.name
    assert steps(train_op, 2)["so_far"] == 9
    assert "global_step" not in train_op.updates


GLOBAL_STEPS: dict[str, tuple[Any, type[Exception], str]] = {
    "number": (3, TypeError, "must be a state, a value of the model or a name; found .* int"),
    "input": ("x", ValueError, "x: the global step must be an initializer of this model"),
    "weights": ("w1", ValueError, "Invalid type float32 for global_step 'w1'"),
    "vector": ("axes", ValueError, "Invalid type int64 for global_step 'axes'"),
}


@pytest.mark.parametrize("case", GLOBAL_STEPS)
def test_what_counts_no_steps_is_refused(loss: GraphValue, case: str) -> None:
    given, kind, message = GLOBAL_STEPS[case]
    with pytest.raises(kind, match=message) as raised:
        GradientDescent().minimize(loss, global_step=given)
    assert isinstance(raised.value, AmpError)


def test_a_global_step_of_another_model_is_refused(loss: GraphValue) -> None:
    other = training_graph(load(onnx.parser.parse_model(TWO_LAYERS)))
    for given in (other.global_step(), other.value("w1")):
        with pytest.raises(ValueError, match=r"of another model|of this model"):
            GradientDescent().minimize(loss, global_step=given)


def test_slots_are_named_after_variable_and_optimizer(loss: GraphValue) -> None:
    optimizer = Adam()
    assert optimizer.get_slot_names() == []
    assert optimizer.get_slot("w1", "m") is None
    optimizer.minimize(loss, var_list=["w1", "w2"])
    assert optimizer.get_slot_names() == ["m", "v"]
    first, second = optimizer.get_slot("w1", "m"), optimizer.get_slot("w1", "v")
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("w1/Adam", "w1/Adam_1")
    assert first.shape == (3, 4)
    assert optimizer.get_slot("b1", "m") is None
    assert [state.name for state in optimizer.variables()] == [
        "beta1_power",
        "beta2_power",
        "w1/Adam",
        "w1/Adam_1",
        "w2/Adam",
        "w2/Adam_1",
    ]


def test_one_optimizer_serves_two_models(model: ir.Model) -> None:
    optimizer = Adam()
    optimizer.minimize(value(model, "loss"), var_list=["w1"])
    other = load(onnx.parser.parse_model(TWO_LAYERS))
    optimizer.minimize(value(other, "loss"), var_list=["w2"])
    names = [state.name for state in optimizer.variables()]
    assert names == ["beta1_power", "beta2_power", "w2/Adam", "w2/Adam_1"]


def test_fetches_tell_norm_rate_and_step(loss: GraphValue) -> None:
    optimizer = GradientDescent(0.25)
    pairs = optimizer.compute_gradients(loss)
    train_op = optimizer.apply_gradients(pairs)
    names = [gradient.name for gradient, _ in pairs]
    with TrainingSession(train_op) as session:
        out = session.run({"x": X}, ["gradient_norm", "learning_rate", "global_step", *names])
    norm = np.sqrt(sum(np.sum(out[name].astype(np.float64) ** 2) for name in names))
    np.testing.assert_allclose(out["gradient_norm"], norm, rtol=1e-6)
    assert out["learning_rate"] == 0.25
    assert out["global_step"] == 1


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
    optimizer = optimizers.AdamW(0.1, exclude_from_weight_decay=["bias"])
    before = optimizer.rule
    optimizer.beta1 = 0.5
    assert (optimizer.beta1, optimizer.get_config()["beta1"]) == (0.5, 0.5)
    assert optimizer.rule is not before
    assert optimizer.exclude_from_weight_decay == ("bias",)
    with pytest.raises(ValueError, match="impossible beta1"):
        optimizer.beta1 = 1.0
    with pytest.raises(ValueError, match="not a regular expression"):
        optimizer.exclude_from_weight_decay = ("(",)
    assert optimizer.beta1 == 0.5


def test_adagrad_needs_an_epsilon_if_it_starts_at_zero() -> None:
    assert optimizers.Adagrad(epsilon=0).epsilon == 0
    with pytest.raises(ValueError, match="impossible epsilon"):
        optimizers.Adagrad(initial_accumulator_value=0, epsilon=0)


def test_the_learning_rate_can_be_changed_between_steps(
    dense_model: Callable[..., ir.Model],
) -> None:
    optimizer = GradientDescent(1.0)
    model = dense_model(np.zeros((1, 2), np.float32))
    ones = np.ones((1, 2), np.float32)
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        session.run({"g": ones})
        optimizer.lr = 0.25
        session.run({"g": ones})
        assert optimizer.learning_rate == 0.25
        np.testing.assert_array_equal(session.state_dict()["w"], -1.25 * ones)


def test_weights_are_read_and_set_in_the_running_session(
    dense_model: Callable[..., ir.Model],
) -> None:
    optimizer = Momentum(1.0, 0.5)
    model = dense_model(np.zeros((1, 2), np.float32))
    ones = np.ones((1, 2), np.float32)
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        session.run({"g": ones})
        assert [state.name for state in optimizer.weights] == ["global_step", "w/Momentum"]
        step, velocity = optimizer.get_weights()
        assert step == 1
        np.testing.assert_array_equal(velocity, ones)
        optimizer.set_weights([np.array(7), 4 * ones])
        session.run({"g": ones})
        state = session.state_dict()
    assert state["global_step"] == 8
    np.testing.assert_array_equal(state["w/Momentum"], 3 * ones)


def test_slots_of_the_users_own_can_be_added(loss: GraphValue) -> None:
    optimizer = GradientDescent()
    variable = loss.graph.variable("b1")
    slot = optimizer.add_slot(variable, "average", "ones")
    assert slot is optimizer.get_slot(variable, "average")
    assert slot.name == "b1/GradientDescent"
    np.testing.assert_array_equal(slot.read(), np.ones(4))
    assert optimizer.add_slot(variable, "average") is slot
    np.testing.assert_array_equal(optimizer.add_slot(variable, "x", [1, 2, 3, 4]).read()[2], 3)
    with pytest.raises(ValueError, match="unknown initializer"):
        optimizer.add_slot(variable, "y", "random")
    with pytest.raises(ValueError, match="shape of its variable"):
        optimizer.add_slot(variable, "z", np.zeros(3))


CONFIGURED: list[Optimizer] = [
    GradientDescent(0.5, name="G", clipnorm=2.0),
    Momentum(0.5, 0.25, True, name="M"),
    optimizers.Adagrad(0.5, 0.25, 1e-3, name="A"),
    optimizers.Adadelta(0.5, 0.25, 1e-3, name="D"),
    optimizers.RMSProp(0.5, 0.25, 0.125, 1e-3, True, True, "R"),
    Adam(0.5, 0.25, 0.125, 1e-3, True, "Ad", lazy=True, clipvalue=3.0),
    optimizers.AdamW(0.5, 0.25, 0.125, 1e-3, 0.75, ["bias"], name="W", global_clipnorm=1.0),
    optimizers.LAMB(0.5, 0.25, 0.125, 1e-3, 0.75, ["bias"], name="L"),
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


def test_get_gradients_clips_and_refuses_variables_without_gradient(loss: GraphValue) -> None:
    optimizer = GradientDescent(clipvalue=0.5)
    (gradient,) = optimizer.get_gradients(loss, ["w1"])
    assert gradient.value.producer().op_type == "Clip"
    with pytest.raises(ValueError, match=r"unused.*a gradient is None"):
        optimizer.get_gradients(loss, ["unused"])


def test_what_denotes_no_optimizer_is_refused() -> None:
    for identifier in ("nadam", 3, None, {}):
        with pytest.raises(ValueError, match="Could not interpret optimizer identifier"):
            optimizers.get(identifier)
    given = Adam()
    assert optimizers.get(given) is given


def test_an_optimizer_clips_in_one_way_and_takes_no_unknown_argument() -> None:
    with pytest.raises(ValueError, match="clips in one way; found clipnorm and clipvalue"):
        Adam(clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(TypeError, match=r"unknown argument; found .*clip_norm"):
        Adam(clip_norm=1.0)


def test_a_child_that_says_nothing_about_updates_cannot_apply(loss: GraphValue) -> None:
    class Silent(Optimizer):
        pass

    with pytest.raises(NotImplementedError, match="UpdateRule does not say how"):
        Silent(False, "silent").minimize(loss)


def test_iterations_can_be_set_to_a_state_before_gradients_are_applied(loss: GraphValue) -> None:
    graph = loss.graph
    counter = graph.state("my_steps", np.array(5, np.int64), "global_step")
    optimizer = GradientDescent()
    optimizer.iterations = counter
    assert optimizer.iterations is counter
    op = optimizer.minimize(loss)
    assert op.global_step == "my_steps"
    assert steps(op, 2)["my_steps"] == 7
    with pytest.raises(ValueError, match=r"Cannot set `iterations` to a new Variable .*assign"):
        optimizer.iterations = graph.global_step()
    counter.assign(9)
    assert steps(op)["my_steps"] == 10
