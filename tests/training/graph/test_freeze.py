"""Frozen means frozen: weights, statistics, Dropout, and what an exporter stored as weights."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptimizerValueError, OptionError
from amp_rewrite.optimizers import GradientDescent, group

RANDOM = np.random.default_rng(5)
SHAPES = {"body.weight": (3, 4), "norm.weight": (4,), "norm.bias": (4,), "head.weight": (4, 2)}
STATISTICS = {
    "mean": RANDOM.normal(size=4).astype(np.float32),
    "var": RANDOM.uniform(0.5, 2, 4).astype(np.float32),
}
WEIGHTS = {k: RANDOM.normal(size=shape).astype(np.float32) for k, shape in SHAPES.items()}
X = RANDOM.normal(size=(5, 3)).astype(np.float32)


def network(body: str = "", **more: Any) -> ir.Model:
    """Return body -> batch normalization -> head, with a loss of squares."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x) => (float loss) <float ratio = {{0.5}}> {{
        h = MatMul(x, "body.weight")
        z = BatchNormalization<momentum = 0.9>(h, "norm.weight", "norm.bias", mean, var)
        {body or "d = Identity(z)"}
        y = MatMul(d, "head.weight")
        s = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(s)
    }}"""
    proto = onnx.parser.parse_model(text)
    for name, array in {**WEIGHTS, **STATISTICS, **more}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


def step_of(model: ir.Model, **arguments: Any) -> Any:
    return GradientDescent(0.1).minimize(amp.value(model, "loss"), **arguments)


def trained_head(steps: int) -> np.ndarray:
    """Return the head after steps of gradient descent on a frozen, normalized body, in float64."""
    h = X.astype(np.float64) @ WEIGHTS["body.weight"]
    h = (h - STATISTICS["mean"]) / np.sqrt(STATISTICS["var"] + 1e-5)
    z = h * WEIGHTS["norm.weight"] + WEIGHTS["norm.bias"]
    w = WEIGHTS["head.weight"].astype(np.float64)
    for _ in range(steps):
        w = w - 0.1 * z.T @ (2 * (z @ w) / (5 * 2))
    return w


@pytest.mark.parametrize("how", ["freeze", "var_list"])
def test_a_frozen_normalization_is_in_inference_mode(how: str) -> None:
    model = network()
    if how == "freeze":
        assert amp.freeze(model, "body.*|norm.*") == ["body.weight", "norm.weight", "norm.bias"]
        op = step_of(model)
    else:
        op = step_of(model, var_list="head.weight")
    assert set(op.updates) == {"head.weight", "global_step"}
    with amp.TrainingSession(op) as session:
        for _ in range(4):
            session.run({"x": X})
        np.testing.assert_allclose(session.state_dict()["head.weight"], trained_head(4), rtol=1e-5)


def test_nothing_is_computed_behind_what_is_frozen() -> None:
    model = network()
    amp.freeze(model, "body.*|norm.*")
    step = amp.build_step(step_of(model))
    passed = {node.metadata_props.get("amp_rewrite.gradient_of") for node in step.graph}
    names = {node.outputs[0].name: node.name for node in step.graph}
    assert names["y"] in passed
    assert not passed & {names["h"], names["z"], names["d"]}


@pytest.mark.parametrize("names", ["body.*", "body.*|norm.weight"])
def test_a_normalization_of_which_a_part_is_trained_tracks_statistics(names: str) -> None:
    model = network()
    amp.freeze(model, names)
    assert {"mean", "var"} <= set(step_of(model).updates)


@pytest.mark.parametrize("names", ["body.*|norm.*", "body.*"])
@pytest.mark.parametrize("tracks", [True, False])
def test_train_statistics_overrules(names: str, tracks: bool) -> None:
    model = network()
    amp.freeze(model, names, train_statistics=tracks)
    assert ({"mean", "var"} <= set(step_of(model).updates)) is tracks


def test_a_model_exported_in_training_mode_is_put_in_inference_mode() -> None:
    model = network()
    normalization = next(n for n in model.graph if n.op_type == "BatchNormalization")
    normalization.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    normalization.resize_outputs(3)
    for name, output in zip(("next_mean", "next_var"), normalization.outputs[1:], strict=True):
        output.name = name
    amp.freeze(model, "body.*|norm.*")
    with amp.TrainingSession(step_of(model)) as session:
        session.run({"x": X})
        np.testing.assert_allclose(session.state_dict()["head.weight"], trained_head(1), rtol=1e-5)


def test_later_gradients_may_train_what_earlier_ones_did_not_pass() -> None:
    model = network()
    head = step_of(model, var_list="head.weight")
    both = group(head, step_of(model, var_list=["norm.weight", "norm.bias"]))
    assert {"mean", "var", "head.weight", "norm.bias"} <= set(both.updates)


def test_later_gradients_cannot_train_what_earlier_ones_took_for_frozen() -> None:
    model = network()
    step_of(model, var_list="body.weight")
    with pytest.raises(OptimizerValueError, match=r"through a node in inference mode.*at once"):
        step_of(model, var_list="norm.weight")
    assert set(step_of(model, var_list="head.weight").updates) == {"head.weight", "global_step"}


def test_a_var_list_trains_what_is_frozen() -> None:
    model = network()
    amp.freeze(model, "head.*")
    assert amp.frozen(model) == ["head.weight"]
    assert "head.weight" in step_of(model, var_list="head.weight").updates


def test_what_is_frozen_is_chosen_before_gradients_are_computed() -> None:
    model = network()
    step_of(model)
    with pytest.raises(OptionError, match="gradients have been computed"):
        amp.freeze(model, "head.*")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variables": "tail.*"}, "freeze: the pattern matches no variable"),
        ({"variables": "head.*", "train_statistics": 2}, "train_statistics must be True or False"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.freeze(network(), **arguments)


ATTENTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x, bool[n, 4] mask) => (float loss)
<float[4, 4] "layer.0.weight", float[4, 1] "head.weight", float[1] "head.bias" = {0.5},
 float[1] "layer.0.gate" = {1}, float val_3 = {0.35}, float val_4 = {-10000},
 float[1] exponent = {2}> {
    h = MatMul(x, "layer.0.weight")
    scaled = Mul(h, val_3)
    masked = Where(mask, scaled, val_4)
    half = Constant<value = float[1] {0.5}>()
    a = Mul(masked, half)
    gated = Mul(a, "layer.0.gate")
    squared = Pow(gated, exponent)
    p = MatMul(squared, "head.weight")
    y = Add(p, "head.bias")
    loss = ReduceMean<keepdims = 0>(y)
}"""
CONSTANTS = {"val_3", "val_4", "half", "exponent"}


def attention(text: str = ATTENTION) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    for name, shape in re.findall(r'float\[(?:4), (\d)\] "?([\w.]+)"?[,>]', text):
        array = np.ones((4, int(name)), np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, shape))
    return amp.load(proto)


def test_constants_of_formulas_are_not_trained() -> None:
    model = attention()
    assert set(amp.frozen(model)) == CONSTANTS
    trained = {
        v.name for v in amp.value(model, "loss").graph.variables(amp.value(model, "loss").value)
    }
    assert trained == {"layer.0.weight", "layer.0.gate", "head.weight", "head.bias"}


def test_a_pattern_overrules_what_is_a_constant() -> None:
    model = attention()
    assert amp.unfreeze(model, "val_*") == ["val_3", "val_4"]
    assert "val_3" in step_of(model).updates
    assert set(amp.frozen(model)) == {"half", "exponent"}


def test_without_paths_among_the_names_a_number_is_a_weight() -> None:
    model = attention(ATTENTION.replace("layer.0.", "layer").replace("head.", "head"))
    assert set(amp.frozen(model)) == CONSTANTS - {"val_3"}


GROUP_NORM = """<ir_version: 10, opset_import: ["": 20]>
    g (float[n, 2, 4] x) => (float loss)
    <float[2] val_1 = {1, 1}, float[2] val_2 = {0, 0}, float[2] val_3 = {1, 2},
     float[2] "norm.weight" = {1, 1}, float[2] "norm.bias" = {0, 0},
     float[4] plain = {1, 1, 1, 1}> {
        none = Constant<value = float[2] {0, 0}>()
        a = InstanceNormalization(x, val_1, val_2)
        b = InstanceNormalization(a, val_3, none)
        c = InstanceNormalization(b, "norm.weight", "norm.bias")
        d = LayerNormalization(c, plain)
        loss = ReduceMean<keepdims = 0>(d)
    }"""


def test_scales_of_1_and_biases_of_0_that_are_no_parameters_are_not_trained() -> None:
    model = amp.load(onnx.parser.parse_model(GROUP_NORM))
    assert set(amp.frozen(model)) == {"val_1", "val_2", "plain"}
    model = amp.load(onnx.parser.parse_model(GROUP_NORM.replace("norm.", "norm")))
    assert amp.frozen(model) == []


def test_a_bias_of_0_that_a_constant_node_held_is_not_trained_beside_weights_of_products() -> None:
    text = GROUP_NORM.replace("loss =", 'e = MatMul(d, "head.weight") loss =')
    proto = onnx.parser.parse_model(text.replace("keepdims = 0>(d)", "keepdims = 0>(e)"))
    head = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "head.weight")
    proto.graph.initializer.append(head)
    assert set(amp.frozen(amp.load(proto))) == {"val_1", "val_2", "plain", "none"}


def test_a_model_whose_weights_are_constant_nodes_is_trained() -> None:
    model = amp.load(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float loss) {
        w = Constant<value = float[2, 2] {1, 2, 3, 4}>()
        b = Constant<value = float[2] {1, 2}>()
        h = MatMul(x, w)
        y = Add(h, b)
        loss = ReduceMean<keepdims = 0>(y)
    }""")
    )
    assert amp.frozen(model) == []


def test_a_table_that_a_constant_node_held_is_no_weight_where_others_are_initializers() -> None:
    model = attention(ATTENTION.replace("float[1] {0.5}", "float[4] {1, 2, 3, 4}"))
    assert "half" in amp.frozen(model)
