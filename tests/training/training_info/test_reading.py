from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import training_models as models
from onnx import external_data_helper, numpy_helper

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.io.load import load
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.training_info import (
    TrainingInfoError,
    lower_training_operators,
    read_training_info,
)


def test_an_mlp_that_adam_trains_learns_and_is_equal_to_numpy():
    losses: list[float] = []
    with TrainingSession(read_training_info(models.adam_mlp())) as session:
        reference = models.NumpyAdam(session.state_dict())
        for seed in range(200):
            feeds = models.batch(seed)
            losses.append(float(session.run(feeds)["loss"]))
            assert losses[-1] == pytest.approx(reference.train(feeds), rel=2e-5)
        state = session.state_dict()
    for name, weight in reference.weights.items():
        np.testing.assert_allclose(state[name], weight, rtol=1e-3, atol=1e-4)
    assert state["step"] == 200
    assert np.mean(losses[-20:]) < 0.05 * np.mean(losses[:5])


def test_tensors_have_the_roles_that_the_operators_give_them():
    train_op = read_training_info(models.adam_mlp())
    states = train_op.graph.states
    roles = {name: state.role for name, state in states.items()}
    slots = [f"{kind}{n}" for kind in "VH" for n in models.SHAPES]
    assert roles == dict.fromkeys(models.WEIGHTS, "variable") | dict.fromkeys(slots, "slot") | {
        "step": "global_step",
        "R": "learning_rate",
    }
    assert [name for name, state in states.items() if state.trainable] == [*models.WEIGHTS]
    assert train_op.global_step == "step"
    assert train_op.loss is not None
    assert train_op.loss.name == "L"


def test_the_learning_rate_can_be_set_and_the_step_be_read():
    with TrainingSession(read_training_info(models.adam_mlp())) as session:
        session.learning_rate = 0.0
        before = session.state_dict()["W1"]
        session.run(models.batch(0))
        assert session.global_step == 1
        assert (session.state_dict()["W1"] == before).all()


def test_the_initialization_sets_what_it_binds_and_nothing_else():
    model = models.adam_mlp()
    states = read_training_info(model).graph.states
    raw = read_training_info(model, initialize=False).graph.states
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for name in models.WEIGHTS:
        assert (raw[name].read() == held[name]).all()
        assert (states[name].read() == held[name]).all() == (name[0] == "B")
    again = read_training_info(model).graph.states
    assert (states["W1"].read() == again["W1"].read()).all()


def test_the_trained_inference_model_comes_back_in_its_own_structure():
    model = models.adam_mlp()
    with TrainingSession(read_training_info(model)) as session:
        session.run(models.batch(0))
        exported = session.export()
        state = session.state_dict()
    assert [v.name for v in exported.graph.inputs] == ["X"]
    assert [v.name for v in exported.graph.outputs] == ["Y"]
    assert [n.op_type for n in exported.graph] == ["MatMul", "Add", "Relu", "MatMul", "Add"]
    for name, value in exported.graph.initializers.items():
        assert value.const_value is not None
        assert (value.const_value.numpy() == state[name]).all()


def test_the_source_is_not_changed():
    model = models.adam_mlp()
    before = model.SerializeToString(deterministic=True)
    loaded = load(model)
    nodes = len(loaded.graph)
    read_training_info(model)
    read_training_info(loaded)
    assert model.SerializeToString(deterministic=True) == before
    assert len(loaded.graph) == nodes


def first_losses(source: Any, **options: Any) -> list[float]:
    with TrainingSession(read_training_info(source, **options)) as session:
        return [float(session.run(models.batch(seed))["loss"]) for seed in range(5)]


def test_a_file_with_external_data_trains_as_the_model_in_memory_does(tmp_path: Path):
    model = models.adam_mlp()
    expected = first_losses(model)
    external_data_helper.convert_model_to_external_data(
        model, location="weights.bin", size_threshold=0
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert first_losses(path) == expected
    assert first_losses(load(path)) == expected
    assert first_losses(path.read_bytes(), base_dir=tmp_path) == expected


def test_a_model_of_an_old_opset_trains_as_one_of_a_new_opset_does():
    model = models.adam_mlp()
    expected = first_losses(model)
    model.opset_import[0].version = 12
    np.testing.assert_allclose(first_losses(model), expected, rtol=1e-6)
    with TrainingSession(read_training_info(model)) as session:
        assert session.export().graph.opset_imports[""] == 12
    with pytest.raises(TrainingInfoError, match=r"cannot change its opset; .* read_training_info"):
        lower_training_operators(regression_of_old_opset())


REGRESSION = """
line (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w> { y = MatMul(x, w) }
"""


def regression(optimizer: str, slots: int, new: str) -> onnx.ModelProto:
    """Return linear regression with the squared error, as sgd, Momentum or Adagrad train it."""
    outputs = "".join(f", float[2, 1] s{i}_new" for i in range(slots))
    algorithm = f"""
    fit (float[N, 1] t) => (float loss, float[2, 1] w_new{outputs})
    <float rate = {{0.1}}, int64 zero = {{1}}{", float[2, 1] s0" if slots else ""}>
    {{
        d = Sub(y, t)
        q = Mul(d, d)
        loss = ReduceMean<keepdims = 0>(q)
        g = ai.onnx.preview.training.Gradient<xs = ["w"], zs = ["x", "t"], y = "loss">(w, x, t)
        {new} = {optimizer}
    }}"""
    start = np.zeros((2, 1), np.float32)
    slot = {"s0": np.full((2, 1), 0.5, np.float32)} if slots else {}
    updates = {"w": "w_new"} | ({"s0": "s0_new"} if slots else {})
    return models.model_of(
        models.graph(REGRESSION, w=start), models.graph(algorithm, **slot), updates
    )


def regression_of_old_opset() -> onnx.ModelProto:
    model = REGRESSIONS["sgd"][0]
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.graph.node.append(
        onnx.helper.make_node(
            "Gradient", ["x"], ["g"], domain="ai.onnx.preview.training", xs=["x"], y="y"
        )
    )
    model.opset_import[0].version = 12
    return model


def sgd(w: np.ndarray, s: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w - 0.1 * g, s


def momentum(w: np.ndarray, s: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = 0.9 * s + 0.3 * g
    return w - 0.1 * s, s


def nesterov(w: np.ndarray, s: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = 0.9 * s + 0.3 * g
    return w - 0.1 * (g + 0.9 * s), s


def adagrad(w: np.ndarray, s: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = s + g * g
    return w - 0.1 / 1.5 * g / (np.sqrt(s) + 1e-3), s


MOMENTUM = """ai.onnx.preview.training.Momentum
    <alpha = 0.9, beta = 0.3, norm_coefficient = 0.0, mode = "{}">(rate, zero, w, g, s0)"""
ADAGRAD = """ai.onnx.preview.training.Adagrad
    <decay_factor = 0.5, epsilon = 1e-3>(rate, zero, w, g, s0)"""
REGRESSIONS = {
    "sgd": (regression("Sub(w, move)", 0, "move = Mul(rate, g) w_new"), sgd),
    "momentum": (regression(MOMENTUM.format("standard"), 1, "w_new, s0_new"), momentum),
    "nesterov": (regression(MOMENTUM.format("nesterov"), 1, "w_new, s0_new"), nesterov),
    "adagrad": (regression(ADAGRAD, 1, "w_new, s0_new"), adagrad),
}


def line(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((16, 2)).astype(np.float32)
    return {"x": x, "t": x @ np.array([[1.0], [-2.0]], np.float32)}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_linear_regression_is_equal_to_numpy(name: str):
    model, update = REGRESSIONS[name]
    w, s = np.zeros((2, 1)), np.full((2, 1), 0.5)
    losses: list[float] = []
    with TrainingSession(read_training_info(model)) as session:
        for seed in range(60):
            feeds = line(seed)
            losses.append(float(session.run(feeds)["loss"]))
            d = feeds["x"] @ w - feeds["t"]
            assert losses[-1] == pytest.approx(float((d * d).mean()), rel=1e-3, abs=1e-6)
            w, s = update(w, s, 2 * feeds["x"].T @ d / len(d))
        np.testing.assert_allclose(session.state_dict()["w"], w, rtol=1e-4, atol=1e-5)
        assert session.evaluate(line(0))["loss"] < 0.6 * losses[0]


def test_what_the_inference_graph_gives_can_be_an_update_and_a_loss():
    inference = """
    mean (float x) => (float loss, float w_new) <float w = {2.0}> {
        d = Sub(x, w) loss = Mul(d, d) h = Add(x, w) two = Constant<value = float {2.0}>()
        w_new = Div(h, two)
    }"""
    model = models.model_of(models.graph(inference), models.graph("a () => () {}"), {"w": "w_new"})
    with TrainingSession(read_training_info(model)) as session:
        assert session.run({"x": np.array(4, np.float32)})["loss"] == 4
        assert session.run({"x": np.array(4, np.float32)})["loss"] == 1
        assert session.state_dict()["w"] == 3.5


SECOND = """
again () => (float loss, float b_new) <float rate = {0.5}> {
    e = Sub(y, two)
    loss = Mul(e, e)
    g = ai.onnx.preview.training.Gradient<xs = ["b"], zs = ["x", "w"], y = "loss">(b, x, w)
    m = Mul(rate, g)
    b_new = Sub(b, m)
}
"""


def two_algorithms() -> onnx.ModelProto:
    """Return y = w * x + b, of which w is trained, and then b with the new w."""
    inference = """
    f (float x) => (float y) <float w = {1.0}, float b = {0.5}, float two = {2.0}> {
        p = Mul(w, x) y = Add(p, b)
    }"""
    first = """
    a () => (float loss, float w_new) <float rate = {0.25}> {
        e = Sub(y, two)
        loss = Mul(e, e)
        g = ai.onnx.preview.training.Gradient<xs = ["w"], zs = ["x", "b"], y = "loss">(w, x, b)
        m = Mul(rate, g)
        w_new = Sub(w, m)
    }"""
    model = models.model_of(models.graph(inference), models.graph(first), {"w": "w_new"})
    models.add_training_info(model, models.graph(SECOND), {"b": "b_new"})
    return model


def test_a_second_algorithm_sees_what_the_first_has_updated():
    w, b, x = 1.0, 0.5, 0.5
    with TrainingSession(read_training_info(two_algorithms())) as session:
        for _ in range(4):
            found = session.run({"x": np.array(x, np.float32)}, ["loss", "loss/1"])
            assert found["loss"] == pytest.approx((w * x + b - 2) ** 2, rel=1e-6)
            w -= 0.25 * 2 * (w * x + b - 2) * x
            assert found["loss/1"] == pytest.approx((w * x + b - 2) ** 2, rel=1e-6)
            b -= 0.5 * 2 * (w * x + b - 2)
        state = session.state_dict()
    assert state["w"] == pytest.approx(w, rel=1e-6)
    assert state["b"] == pytest.approx(b, rel=1e-6)


def test_one_of_several_algorithms_can_be_read():
    train_op = read_training_info(two_algorithms(), 1)
    assert [*train_op.updates] == ["b"]
    with TrainingSession(train_op) as session:
        assert session.run({"x": np.array(0.5, np.float32)})["loss"] == 1
        assert session.state_dict()["b"] == 1.5


def initialize(info: onnx.TrainingInfoProto, output: str) -> None:
    graph = models.graph("i () => (float[3] a) { a = RandomNormal<shape = [3]>() }")
    info.initialization.CopyFrom(graph)
    info.initialization_binding.add(key="w", value=output)


def put(entry: Any, field: str, value: str) -> None:
    setattr(entry, field, value)


def replace(names: Any, value: str) -> None:
    names[0] = value


ERRORS: dict[str, tuple[Callable[[onnx.TrainingInfoProto], object], str]] = {
    "no update": (
        lambda info: info.ClearField("update_binding"),
        "the training_info updates nothing; expected an update_binding",
    ),
    "an unknown tensor": (
        lambda info: put(info.update_binding[0], "key", "v"),
        "update_binding of 'v': the bound tensor is not an initializer; expected an initializer",
    ),
    "an unknown value": (
        lambda info: put(info.update_binding[0], "value", "v"),
        "update_binding of 'w': the new value is not an output; found 'v'; expected an output",
    ),
    "an update twice": (
        lambda info: info.update_binding.add(key="w", value="s0_new"),
        "update_binding of 'w': a tensor is bound twice",
    ),
    "a value twice": (
        lambda info: replace(info.algorithm.node[0].output, "y"),
        "value 'y': the algorithm defines a value of the inference graph once more",
    ),
    "an undefined value": (lambda info: replace(info.algorithm.node[0].input, "v"), "'v'"),
    "an initial value of another shape": (
        lambda info: initialize(info, "a"),
        "initialization_binding of 'w': the initial value does not fit the initializer; "
        "found FLOAT [3]; expected FLOAT [2,1]",
    ),
    "an unknown initial value": (
        lambda info: initialize(info, "b"),
        "initialization_binding of 'w': the initial value is not an output; found 'b'; "
        "expected an output of the initialization: a",
    ),
    "metadata that is none": (
        lambda info: info.algorithm.metadata_props.add(key="amp_rewrite.training", value="["),
        "amp_rewrite.training: the metadata of the algorithm cannot be read",
    ),
}


@pytest.mark.parametrize("change", ERRORS)
def test_what_is_not_as_the_standard_says_is_an_error_in_one_line(change: str):
    damage, message = ERRORS[change]
    model = onnx.ModelProto.FromString(REGRESSIONS["momentum"][0].SerializeToString())
    damage(model.training_info[0])
    with pytest.raises((TrainingInfoError, GraphError)) as caught:
        read_training_info(model)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_training_info_is_an_error_that_tells_what_to_do():
    model = REGRESSIONS["sgd"][0]
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    bare.ClearField("training_info")
    with pytest.raises(TrainingInfoError, match="the model has no training_info; build a training"):
        read_training_info(bare)


def test_an_index_beyond_the_last_training_info_is_an_error():
    with pytest.raises(
        TrainingInfoError, match="no training_info of this index; found 2; expected"
    ):
        read_training_info(two_algorithms(), 2)
