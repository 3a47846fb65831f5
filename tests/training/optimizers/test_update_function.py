"""A step has one node per variable for its update: the call of a function in the same file."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.training.optimizers.update_function import DOMAIN
from amp_rewrite.training.step.build_step import build_step

OPTIMIZERS = [
    amp.optimizers.GradientDescent,
    amp.optimizers.Momentum,
    amp.optimizers.Adagrad,
    amp.optimizers.Adadelta,
    amp.optimizers.RMSProp,
    amp.optimizers.Adam,
    amp.optimizers.AdamW,
    amp.optimizers.LAMB,
]


FORWARD = """forward (float[n, 6] x, int64[n] t) => (float loss) {
    y = Gemm(x, w1, bias1)
    h = Tanh(y)
    z = Gemm(h, w2, bias2)
    loss = SoftmaxCrossEntropyLoss(z, t)
}"""
SHAPES = {"w1": (6, 5), "bias1": (5,), "w2": (5, 3), "bias2": (3,)}


def forward():
    graph, rng = onnx.parser.parse_graph(FORWARD), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.normal(size=shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    return amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))


def step_of(optimizer):
    return to_proto(build_step(optimizer.minimize(amp.value(forward(), "loss"))))


def calls(step):
    return Counter(node.op_type for node in step.graph.node if node.domain == DOMAIN)


def run(step):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(8, 6)).astype(np.float32), "t": rng.integers(0, 3, 8)}
    session = onnxruntime.InferenceSession(
        step.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.__name__)
def test_every_variable_is_updated_by_one_call(optimizer):
    step = step_of(optimizer())
    assert calls(step) == {optimizer.__name__: len(SHAPES)}
    assert [f.name for f in step.functions] == [optimizer.__name__]
    onnx.checker.check_model(step, full_check=True)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.__name__)
def test_a_call_computes_what_the_inlined_function_does(optimizer):
    step = step_of(optimizer())
    plain = onnx.inliner.inline_local_functions(step)
    assert not calls(plain)
    for one, other in zip(run(step), run(plain), strict=True):
        np.testing.assert_array_equal(one, other)


def test_variables_that_do_not_decay_have_a_function_of_their_own():
    step = step_of(amp.optimizers.AdamW(exclude_from_weight_decay=["bias"]))
    assert calls(step) == {"AdamW": len(SHAPES) // 2, "AdamW_1": len(SHAPES) // 2}
    sizes = {function.name: len(function.node) for function in step.functions}
    assert sizes["AdamW_1"] < sizes["AdamW"]


def test_a_rule_of_a_user_becomes_a_function_too():
    class SignRule(amp.optimizers.UpdateRule):
        def update(self, given, shared, slots):
            b = given.b
            return b.sub(given.value, b.mul(b.sign(given.gradient), shared)), slots

    step = step_of(amp.optimizers.Optimizer(name="Sign", rule=SignRule()))
    assert calls(step) == {"Sign": len(SHAPES)}
    assert [node.op_type for node in step.functions[0].node] == ["Sign", "Mul", "Sub"]


class Averages(NamedTuple):
    before: ir.Value  # the variable as it was: its shape and type
    after: ir.Value  # the variable as it is: the same


def test_a_rule_may_return_one_value_twice_and_what_it_was_given():
    class Remembering(amp.optimizers.UpdateRule):
        slots = Averages

        def update(self, given, shared, slots):
            value = given.b.sub(given.value, given.b.mul(given.gradient, shared))
            return value, Averages(given.value, value)

    optimizer = amp.optimizers.Optimizer(name="Remembering", rule=Remembering())
    op = optimizer.minimize(amp.value(forward(), "loss"))
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(8, 6)).astype(np.float32), "t": rng.integers(0, 3, 8)}
    with amp.TrainingSession(op) as session:
        first = session.state_dict()
        session.run(feeds)
        second = session.state_dict()
    for name in SHAPES:
        assert not np.array_equal(first[name], second[name])
        np.testing.assert_array_equal(second[f"{name}/Remembering"], first[name])
        np.testing.assert_array_equal(second[f"{name}/Remembering_1"], second[name])
