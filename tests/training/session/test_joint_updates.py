"""A session updates short vectors together, and computes what the step does, bit for bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.training.optimizers.update_rule import DOMAIN
from amp_rewrite.training.session.joint_updates import join_updates
from amp_rewrite.training.step.step import whole_step

FORWARD = """forward (float[n, 6] x, int64[n] t) => (float loss) {
    y = Gemm(x, w1, bias1)
    h = Tanh(y)
    scaled = Mul(h, scale)
    z = Gemm(scaled, w2, bias2)
    loss = SoftmaxCrossEntropyLoss(z, t)
}"""
SHAPES = {"w1": (6, 5), "bias1": (5,), "scale": (5,), "w2": (5, 3), "bias2": (3,)}
ELEMENTWISE = ["GradientDescent", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam", "AdamW"]


def forward() -> ir.Model:
    graph, rng = onnx.parser.parse_graph(FORWARD), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.normal(size=shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def step_of(optimizer: amp.optimizers.Optimizer) -> ir.Model:
    train_op = optimizer.minimize(amp.value(forward(), "loss"))
    return whole_step(train_op).cut(["loss"])[0]


def calls(model: ir.Model) -> Counter[str]:
    nodes = [node for graph in graphs_in(model.graph) for node in graph]
    return Counter(node.op_type for node in nodes if node.domain == DOMAIN)


def results(model: ir.Model) -> dict[str, np.ndarray]:
    proto = to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(8, 6)).astype(np.float32), "t": rng.integers(0, 3, 8)}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    found = session.run(None, feeds)
    return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}


def assert_joined(model: ir.Model, before: dict[str, int], after: dict[str, int]) -> None:
    expected = results(model)
    assert calls(model) == before
    join_updates(model)
    assert calls(model) == after
    found = results(model)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_vectors_are_updated_by_one_call(name: str) -> None:
    assert_joined(step_of(getattr(amp.optimizers, name)()), {name: 5}, {name: 3})


@pytest.mark.parametrize("mode", ["if", "select"])
def test_conditional_updates_are_joined_where_they_are(mode: str) -> None:
    optimizer = LossScaleOptimizer(amp.optimizers.Adam(), conditional=mode)
    assert_joined(step_of(optimizer), {"Adam": 5}, {"Adam": 3})


def test_a_rule_that_asks_for_the_norm_of_a_variable_is_not_joined() -> None:
    assert_joined(step_of(amp.optimizers.LAMB()), {"LAMB": 5}, {"LAMB": 5})


def test_an_update_that_reads_another_one_is_not_joined_with_it() -> None:
    model = amp.load(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17, "amp_rewrite" : 1]>
            chain (float[n, 6] x, int64[n] t, float[3] v, float[3] g) => (float[3] b) {
                a = amp_rewrite.Descend(v, g)
                b = amp_rewrite.Descend(a, g)
            }
            <domain: "amp_rewrite", opset_import: ["" : 17]>
            Descend (value, gradient) => (new) { new = Sub(value, gradient) }"""
        )
    )
    node = model.graph[0]
    node.outputs[0].shape = ir.Shape([3])
    join_updates(model)
    assert calls(model) == {"Descend": 2}


def test_a_session_trains_as_the_step_says() -> None:
    train_op = amp.optimizers.Adam().minimize(amp.value(forward(), "loss"))
    expected = results(whole_step(train_op).cut(["loss"])[0])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(8, 6)).astype(np.float32), "t": rng.integers(0, 3, 8)}
    with amp.TrainingSession(train_op) as session:
        session.run(feeds)
        states = session.state_dict()
        for state in session.info.states:
            np.testing.assert_array_equal(states[state.name], expected[state.output])
