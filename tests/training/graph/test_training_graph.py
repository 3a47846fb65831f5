"""What a model becomes for training: weights, states, training mode, values by name."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from amp_rewrite.errors import GradientError, OptionError, UnknownValueError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.optimizers import AdamW, GradientDescent
from amp_rewrite.training.graph.training_graph import training_graph, value
from amp_rewrite.training.session.training_session import TrainingSession

PLAIN = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 2] x) => (float loss) <float[2] w = {1, 2}, float low = {-9}, float high = {9}> {
    y = Mul(x, w)
    z = Clip(y, low, high)
    loss = ReduceMean<keepdims=0>(z)
}"""


def parsed(text: str) -> ir.Model:
    return load(onnx.parser.parse_model(text))


def test_a_model_has_one_training_graph_and_a_clone_has_another() -> None:
    model = parsed(PLAIN)
    graph = training_graph(model)
    assert training_graph(model) is graph
    assert value(model, "y").graph is graph
    assert training_graph(clone(model)) is not graph


def test_a_value_knows_its_name_type_and_shape() -> None:
    y = value(parsed(PLAIN), "y")
    assert (y.name, y.dtype, y.shape) == ("y", ir.DataType.FLOAT, (None, 2))


def test_an_unknown_name_is_refused_with_similar_ones() -> None:
    with pytest.raises(UnknownValueError, match=r"los: .*did you mean 'loss' or 'low'\?"):
        value(parsed(PLAIN), "los")
    with pytest.raises(OptionError, match=r"its outputs are \['loss'\]"):
        value(parsed(PLAIN), "qqqqqq")


@pytest.mark.parametrize("model", ["model.onnx", onnx.parser.parse_model(PLAIN)])
def test_a_model_has_to_be_loaded_first(model: object) -> None:
    with pytest.raises(OptionError, match=r"on a loaded model; .* amp_rewrite\.load"):
        value(model, "loss")  # type: ignore[arg-type]


def test_settings_of_operators_are_no_variables() -> None:
    loss = value(parsed(PLAIN), "loss")
    assert [v.name for v in loss.graph.variables(loss.value)] == ["w"]
    assert loss.graph.variables() == [loss.graph.variable("w")]


def test_an_output_of_a_node_is_no_variable() -> None:
    graph = training_graph(parsed(PLAIN))
    with pytest.raises(UnknownValueError, match="y: not a variable"):
        graph.variable("y")


def test_constant_nodes_that_hold_weights_are_lifted() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float loss) {
        w = Constant<value = float[2] {1, 2}>()
        half = Constant<value = float {0.5}>()
        y = Mul(x, w)
        z = Mul(y, half)
        loss = ReduceMean<keepdims=0>(z)
    }""")
    loss = value(model, "loss")
    assert [v.name for v in loss.graph.variables(loss.value)] == ["w"]
    assert "w" in loss.graph.forward().graph.initializers
    with TrainingSession(GradientDescent(1.0).minimize(loss)) as session:
        session.run({"x": np.ones((1, 2), np.float32)})
        trained = session.export()
    np.testing.assert_array_equal(trained.graph.initializers["w"].const_value.numpy(), [0.75, 1.75])


def test_lengths_that_an_exporter_did_not_know_need_not_be_equal() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, height, width] x) => (float loss) <float[2, 1, 1] w = {1, 2}> {
        y = Mul(x, w)
        loss = ReduceMean<keepdims=0>(y)
    }""")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim[1:]:
        dim.dim_param = "?"  # the parser takes no such name
    model = load(proto)
    train_op = GradientDescent(1.0).minimize(value(model, "loss"))
    with TrainingSession(train_op) as session:
        session.run({"x": np.ones((2, 3, 5), np.float32)})
        np.testing.assert_allclose(session.state_dict()["w"].ravel(), [0.5, 1.5], rtol=1e-5)
    assert [str(d) for d in train_op.graph.forward().graph.inputs[0].shape] == ["2", "?", "?"]  # type: ignore[union-attr]


NORMALIZED = """<ir_version: 8, opset_import: ["": {opset}]>
g (float[n, 2] x) => (float loss)
<float[2] scale = {{1, 1}}, float[2] bias = {{0, 0}},
 float[2] mean = {{0, 0}}, float[2] var = {{1, 1}}> {{
    h = BatchNormalization<momentum=0.5>(x, scale, bias, mean, var)
    y = BatchNormalization<momentum=0.5>(h, scale, bias, mean, var)
    z = Mul(y, x)
    loss = ReduceMean<keepdims=0>(z)
}}"""
BATCH = np.array([[1, 4], [3, 0]], np.float32)  # means 2 and 2, variances 1 and 4


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_batch_normalization_trains_and_shared_statistics_go_through_both(opset: int) -> None:
    loss = value(parsed(NORMALIZED.format(opset=opset)), "loss")
    train_op = GradientDescent(0.0).minimize(loss)
    assert [v.name for v in loss.graph.variables()] == ["scale", "bias"]
    with TrainingSession(train_op) as session:
        session.run({"x": BATCH})
        state = session.state_dict()
    np.testing.assert_allclose(state["mean"], [0.5, 0.5], atol=1e-6)  # (0, then 2, then 0)
    np.testing.assert_allclose(state["var"], [1.0, 1.75], rtol=1e-4)  # (1, then 1 or 4, then 1)


def test_statistics_that_the_loss_does_not_depend_on_stay() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float loss, float[n, 2] other)
    <float[2] w = {1, 1}, float[2] s = {1, 1}, float[2] b = {0, 0},
     float[2] m = {0, 0}, float[2] v = {1, 1}> {
        y = Mul(x, w)
        loss = ReduceMean<keepdims=0>(y)
        other = BatchNormalization(x, s, b, m, v)
    }""")
    train_op = GradientDescent().minimize(value(model, "loss"))
    assert set(train_op.updates) == {"w", "global_step"}


@pytest.mark.parametrize("inputs", ["y", "y, ratio", "y, ratio, off"])
def test_dropout_drops_in_training(inputs: str) -> None:
    model = parsed(
        f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 500] x) => (float loss)
    <float[500] w, float ratio = {{0.5}}, bool off = {{0}}> {{
        y = Mul(x, w)
        d = Dropout({inputs})
        loss = ReduceSum<keepdims=0>(d)
    }}""".replace("float[500] w,", "float[1] w = {1},")
    )
    pairs = GradientDescent().compute_gradients(value(model, "loss"))
    train_op = GradientDescent(1.0).apply_gradients(pairs)
    feeds = {"x": np.ones((4, 500), np.float32)}
    with TrainingSession(train_op) as session:
        out = session.run(feeds, ["d", pairs[0][0].name])
    assert set(np.unique(out["d"])) == {0.0, 2.0}
    assert 0.4 < np.mean(out["d"] == 0) < 0.6
    np.testing.assert_allclose(out[pairs[0][0].name], [out["d"].sum()])


def test_old_models_are_brought_up_and_keep_names_and_weights() -> None:
    model = parsed(PLAIN.replace("17", "11"))
    loss = value(model, "loss")
    assert loss.graph.model.graph.opset_imports[""] == 17
    with TrainingSession(GradientDescent(1.0).minimize(loss)) as session:
        session.run({"x": np.ones((1, 2), np.float32)})
        np.testing.assert_allclose(session.state_dict()["w"], [0.5, 1.5])
    assert loss.graph.forward().graph.opset_imports[""] == 11


def test_old_models_that_cannot_be_brought_up_are_refused() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["": 6]>
    g (float[2, 3, 4] x, float[3] s) => (float[2, 3, 4] loss) {
        loss = Add<broadcast = 1, axis = 1>(x, s)
    }""")
    with pytest.raises(GradientError, match=r"opset 6.*Dimension 0 of input 2.*later opset"):
        value(model, "loss")


def test_the_forward_model_gets_no_training_nodes() -> None:
    model = parsed(PLAIN)
    loss = value(model, "loss")
    GradientDescent().minimize(loss)
    assert [node.op_type for node in loss.graph.forward().graph] == ["Mul", "Clip", "ReduceMean"]
    assert len(loss.graph.model.graph) > 3
    assert len(model.graph) == 3


BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 2] x, bool c) => (float loss) <float[2] w = {1, 2}> {
    h = Mul(x, w)
    y = If (c) <
        then_branch = t () => (float[n, 2] a) <float[2] w_1 = {3, 4}, float low = {-9}> {
            a1 = Clip(h, low)
            a = Mul(a1, w_1)
        },
        else_branch = e () => (float[n, 2] b) {
            w_1 = Constant <value = float[2] {5, 6}> ()
            b = Mul(h, w_1)
        }
    >
    loss = ReduceSum<keepdims=0>(y)
}"""


@pytest.mark.parametrize("taken", [True, False])
def test_weights_inside_branches_are_trained(taken: bool) -> None:
    loss = value(parsed(BRANCHES), "loss")
    names = [v.name for v in loss.graph.variables(loss.value)]
    assert names == ["w", "w_1", "w_1_1"]
    x = np.array([[1, 1]], np.float32)
    with TrainingSession(GradientDescent(1.0).minimize(loss)) as session:
        session.run({"x": x, "c": np.array(taken)})
        found = session.state_dict()
        again = session.evaluate({"x": x, "c": np.array(taken)})["loss"]
        exported = onnx_run(session.export(), {"x": x, "c": np.array(taken)})
    if taken:
        np.testing.assert_array_equal(found["w_1"], [2, 2])
        np.testing.assert_array_equal(found["w_1_1"], [5, 6])
    else:
        np.testing.assert_array_equal(found["w_1"], [3, 4])
        np.testing.assert_array_equal(found["w_1_1"], [4, 4])
    assert again == exported


def onnx_run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    proto = to_proto(model)
    onnx.checker.check_model(proto)
    results: Any = ReferenceEvaluator(proto).run(None, feeds)
    return np.asarray(results[0])


def test_random_numbers_inside_a_branch_are_refused() -> None:
    # A backward branch computes the forward one again, and would draw other numbers.
    text = BRANCHES.replace("a1 = Clip(h, low)", "r = RandomUniformLike(h) a1 = Mul(h, r)")
    with pytest.raises(GradientError, match=r"RandomUniformLike\): random numbers inside an If"):
        GradientDescent().minimize(value(parsed(text), "loss"))
    for mode, fails in (("1", True), ("0", False)):
        dropout = f"m = Constant <value = bool {{{mode}}}> () a1 = Dropout(h, low, m)"
        model = parsed(BRANCHES.replace("a1 = Clip(h, low)", dropout))
        if fails:
            with pytest.raises(GradientError, match=r"Dropout\): random numbers inside an If"):
                GradientDescent().minimize(value(model, "loss"))
        else:
            assert len(GradientDescent().compute_gradients(value(model, "loss"))) == 3


def test_the_global_step_is_one_state_whatever_the_model_calls_its_values() -> None:
    model = parsed(
        PLAIN.replace("float[2] w", "float[2] global_step").replace("w)", "global_step)")
    )
    graph = training_graph(model)
    counter = graph.global_step()
    assert counter.name == "global_step_1"
    assert {v.name for v in graph.variables(graph.value("loss").value)} == {"global_step"}
    assert graph.global_step() is counter


def test_shapes_that_are_external_data_are_known(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 4] x) => (float loss) <int64[3] to = {0, 2, 2}, float[2, 2] w = {1, 2, 3, 4}> {
        y = Reshape(x, to)
        z = MatMul(y, w)
        loss = ReduceSum<keepdims=0>(z)
    }"""
    path = tmp_path / "model.onnx"
    proto = onnx.parser.parse_model(text)
    for tensor in proto.graph.initializer:  # the parser does not write raw data
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=0)
    with TrainingSession(GradientDescent(1.0).minimize(value(load(path), "loss"))) as session:
        session.run({"x": np.ones((1, 4), np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [[-1, 0], [1, 2]])


def test_an_old_model_may_list_its_weights_among_the_initializers_alone() -> None:
    text = PLAIN.replace("ir_version: 8", "ir_version: 3").replace(": 17", ": 9")
    text = text.replace("Clip(y, low, high)", "Clip<min = -9.0, max = 9.0>(y)")
    with TrainingSession(GradientDescent(1.0).minimize(value(parsed(text), "loss"))) as session:
        session.run({"x": np.ones((1, 2), np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [0.5, 1.5])


def test_a_mask_of_infinities_is_no_weight() -> None:
    # -inf - rate * decay * -inf is NaN.
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2] x) => (float loss) <float[2] w = {1, 2}> {
        y = Mul(x, w)
        z = Add(y, mask)
        s = Softmax(z)
        loss = ReduceSum<keepdims=0>(s)
    }"""
    proto = onnx.parser.parse_model(text)
    mask = np.array([0, -np.inf], np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask"))
    loss = value(load(proto), "loss")
    assert [v.name for v in loss.graph.variables(loss.value)] == ["w"]
    with TrainingSession(AdamW(1.0, weight_decay=0.5).minimize(loss)) as session:
        for _ in range(2):
            assert session.run({"x": np.ones((3, 2), np.float32)})["loss"] == 3
        found = session.state_dict()
    assert "mask" not in found
    assert np.isfinite(found["w"]).all()
