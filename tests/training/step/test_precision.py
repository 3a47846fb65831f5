"""Steps in float16 and bfloat16: what becomes low and what stays float32."""

import collections
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from low_steps import ADAM, LOW, NETWORKS, batch, low_nodes, train_op
from onnx import parser
from rewrite_text import rewritten, step
from runs import distance

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.graph.step_part import Part, part_in, source_in
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step
from amp_rewrite.training.step.precision import in_precision
from amp_rewrite.training.step.step import read_step, whole_step

pytestmark = pytest.mark.filterwarnings("ignore:a float16 step without a loss scale")


@pytest.mark.share(5)
@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_rewritten_step_file_holds_every_invariant_and_does_not_change_again(network, precision):
    step = to_proto(build_step(train_op(network, "if")))
    result = rewritten(step, precision=precision, target="cuda")
    assert result.report.summary.compute_converted > 0
    assert all("::TrainingBatchNormalization" in name for name in result.report.boundaries)


@pytest.mark.share(7)
@pytest.mark.parametrize("optimizer", ADAM)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_float16_step_is_ordinary_onnx_that_a_plain_runtime_runs(network, optimizer):
    step = to_proto(build_step(train_op(network, optimizer), precision="float16"))
    onnx.checker.check_model(step, full_check=True)
    session: Any = onnxruntime.InferenceSession(
        step.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, batch(network)), strict=True))
    assert np.isfinite(found["loss"])
    assert all(array.dtype != np.float16 for array in found.values())


@pytest.mark.share(2)
@pytest.mark.parametrize("precision", LOW)
def test_states_inputs_and_outputs_of_a_low_step_are_those_of_the_float32_step(precision):
    first = to_proto(build_step(train_op("cnn", "if"))).graph
    second = to_proto(build_step(train_op("cnn", "if"), precision=precision)).graph

    def ends(values):
        return {v.name: v.type.tensor_type.elem_type for v in values}

    assert ends(first.input) == ends(second.input)
    assert ends(first.output) == ends(second.output)
    before = {t.name: t.SerializeToString() for t in first.initializer}
    states = {v.name for v in second.input} - {"x", "t"}
    after = {t.name: t.SerializeToString() for t in second.initializer if t.name in states}
    assert after == {name: before[name] for name in states}


@pytest.mark.share(2)
@pytest.mark.parametrize("network", NETWORKS)
def test_each_master_weight_is_cast_once_for_forward_and_backward(network):
    step = build_step(train_op(network, "if"), precision="float16")
    states = set(read_step(step).info.names)
    reads = collections.Counter(
        node.inputs[0].name
        for node in step.graph.all_nodes()
        if node.op_type == "Cast" and node.inputs[0].name in states
    )
    weights = {name for name in states if name.endswith(".weight")}
    assert weights <= reads.keys()
    assert max(reads[name] for name in weights) == 1


@pytest.mark.share(11)
@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize("optimizer", ADAM)
@pytest.mark.parametrize("network", NETWORKS)
def test_only_forward_and_gradient_nodes_are_low(network, optimizer, precision):
    clip = whole_step(train_op(network, optimizer))
    step = in_precision(clip, precision)
    low = low_nodes(step.model, precision)
    assert {part_in(node.metadata_props) for node in low} <= {None, Part.GRADIENT, Part.RANDOM}
    assert {part_in(node.metadata_props) for node in low} >= {None, Part.GRADIENT}
    assert not {node.op_type for node in low} & {"ReduceSum", "ReduceMean", "Softplus", "Exp"}


def test_clipping_by_the_global_norm_is_float32():
    model = amp.load(NETWORKS["mlp"]())
    optimizer = amp.LossScaleOptimizer(amp.optimizers.Adam(1e-3))
    pairs = optimizer.compute_gradients(amp.value(model, "loss"))
    gradients, variables = zip(*pairs, strict=True)
    clipped, _ = amp.optimizers.clip_by_global_norm(gradients, 1.0)
    op = optimizer.apply_gradients(zip(clipped, variables, strict=True))
    low = low_nodes(in_precision(whole_step(op), "float16").model, "float16")
    assert low
    assert {part_in(node.metadata_props) for node in low} <= {None, Part.GRADIENT}


def test_gradients_that_arrive_at_one_variable_are_added_in_float32():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x) => (float loss)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}> {
            a = MatMul (x, w)
            b = Tanh (a)
            c = MatMul (b, w)
            d = MatMul (c, w)
            loss = ReduceMean <keepdims: int = 0> (d)
        }"""
    step = in_precision(whole_step(train_op(parser.parse_model(text))), "float16")
    (total,) = [n for n in step.model.graph if n.op_type == "Sum"]
    types = infer_types(step.model)
    assert {types[v] for v in (*total.inputs, *total.outputs) if v} == {"tensor(float)"}
    assert {v.producer().op_type for v in total.inputs} == {"Cast"}
    assert step.rewriting is not None
    assert "arrive at a variable" in amp.explain(step.rewriting, str(total.name))
    later = amp.rewrite(build_step(train_op(parser.parse_model(text)))).model
    (total,) = [n for n in later.graph if n.op_type == "Sum"]
    assert {v.producer().op_type for v in total.inputs} == {"Cast"}


@pytest.mark.share(7)
@pytest.mark.parametrize("precision", LOW)
@pytest.mark.parametrize(("network", "near", "far"), [("mlp", 0.0, 0.0), ("cnn", 0.01, 0.05)])
def test_a_step_file_rewritten_later_computes_what_precision_computes(
    precision, network, near, far, tmp_path
):
    """Bit for bit; but a file has BatchNormalization spelled out, of which less becomes low.

    Then losses are near, states further: biases that began at zero are off by up to 0.02.
    """
    path = tmp_path / "step.onnx"
    save(build_step(train_op(network, "if")), path)
    later = amp.rewrite(path, precision=precision).model
    assert read_step(later).info.precision == precision
    with (
        TrainingSession(later, emulate=True) as first,
        TrainingSession(train_op(network, "if"), precision=precision, emulate=True) as second,
    ):
        for seed in range(3):
            one, two = (s.run(batch(network, seed))["loss"] for s in (first, second))
            np.testing.assert_allclose(one, two, rtol=near, atol=0)
        expected = second.state_dict()
        for name, array in first.state_dict().items():
            assert distance(expected[name], array) <= far, name


def test_explain_says_that_a_part_of_the_step_is_float32_by_construction():
    step = build_step(train_op("mlp", "if"))
    result = amp.rewrite(step)
    nodes = {node.name: node for node in step.graph.all_nodes()}
    kinds = {}
    for record in result.report.nodes:
        if record.variables and next(iter(record.variables.values())).reason == "float32-part":
            part = part_in(nodes[record.name].metadata_props)
            kinds.setdefault(part, amp.explain(result, record.name))
    assert {Part.LOSS_SCALE, Part.GRADIENT, None} <= kinds.keys()
    for part, text in kinds.items():
        expected = f"part {part} of the training step" if part else "the loss"
        if part is Part.GRADIENT:
            expected = "gradient"
        assert "stays float32: float32 by construction: " in text
        assert expected in text


def test_a_step_is_not_scaled_and_says_so() -> None:
    with pytest.raises(OptionError, match="a training step is not scaled: its weights are no"):
        build_step(train_op("mlp", "if"), precision="float16", overflow="scale")
    large = step(
        "g (float[2,4] x, float[4,4] w) => (float[2,4] y) <float[4] b = {3e5,3e5,3e5,3e5}, "
        "float[4] s = {1,1,1,1}> { [p] p = MatMul(x, w) [t] t = Tanh(p) [q] q = Add(t, b) "
        "[n] n = LayerNormalization(q, s) [z] y = MatMul(n, w) }",
        {},
        loss="y",
    )
    found = amp.rewrite(large, precision="float16", overflow="scale").report.scaling
    assert found is not None
    assert not found.sets
    assert [(u.value, u.why[:31]) for u in found.unscaled] == [
        ("q", "the weights of a training step ")
    ]


def test_a_state_that_overflows_keeps_its_readers_float32():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x) => (float loss)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
         float[4] mask = {0, 0, -3.4e38, -3.4e38}> {
            a = MatMul (x, w)
            m = Add (a, mask)
            p = Softmax (m)
            c = MatMul (p, w)
            loss = ReduceMean <keepdims: int = 0> (c)
        }"""
    with TrainingSession(
        train_op(parser.parse_model(text)), precision="float16", emulate=True
    ) as session:
        found = session.run({"x": np.zeros((2, 4), np.float32)}, ["m", "loss"])
    np.testing.assert_array_equal(found["m"][0], np.array([0, 0, -3.4e38, -3.4e38], np.float32))
    assert np.isfinite(found["loss"])


def test_the_gradient_of_a_float32_operator_is_float32():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 2] x) => (float loss)
        <float[2, 2] w = {4, 0, 0, 4}, float[1, 2] v = {0.001, 0.002}> {
            [first] a = MatMul (x, w)
            [norm] e = ReduceSumSquare <axes: ints = [1]> (a)
            [second] c = MatMul (e, v)
            loss = ReduceMean <keepdims: int = 0> (c)
        }"""
    feeds = {"x": np.array([[100, 1], [4, -50]], np.float32)}  # the squares overflow
    op = train_op(parser.parse_model(text))
    step = in_precision(whole_step(op), "float16")
    sources = {source_in(n.metadata_props) for n in low_nodes(step.model, "float16")} - {None}
    assert sources == {"first", "second"}
    factors = [
        n for n in step.model.graph if n.op_type == "Mul" and source_in(n.metadata_props) == "norm"
    ]
    assert step.rewriting is not None
    texts = [amp.explain(step.rewriting, str(node.name)) for node in factors]
    assert any("the gradient of norm, which is float32" in text for text in texts)
    name = step.info.gradients["w"]
    with (
        TrainingSession(op) as exact,
        TrainingSession(op, precision="float16", emulate=True) as low,
    ):
        expected, found = (s.run(feeds, name)[name] for s in (exact, low))
    np.testing.assert_allclose(found, expected, rtol=5e-3)


def test_a_mean_over_more_elements_than_float16_can_count_has_its_gradient():
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 2] x) => (float loss)
        <float[2, 2] w = {4, 0, 0, 4}, float[2, 2] v = {1, 2, 3, 4}> {
            a = MatMul (x, w)
            m = ReduceMean <axes: ints = [0]> (a)
            c = MatMul (m, v)
            loss = ReduceMean <keepdims: int = 0> (c)
        }"""
    feeds = {"x": np.ones((70_000, 2), np.float32)}
    op = train_op(parser.parse_model(text))
    name = whole_step(op).info.gradients["w"]
    with (
        TrainingSession(op) as exact,
        TrainingSession(op, precision="float16", emulate=True) as low,
    ):
        expected, found = (s.run(feeds, name)[name] for s in (exact, low))
    assert expected.all()
    np.testing.assert_allclose(found, expected, rtol=0.01)
