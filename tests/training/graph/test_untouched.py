"""What reads a model, and what fails, changes nothing of it: bytes before are bytes after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amp_rewrite as amp
from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import training_graph
from amp_rewrite.training.step.build_step import build_step

HEAD = '<ir_version: 8, opset_import: ["": {opset}, "local": 1]>\n'
END = """
    d = Det(square)
    det = Mul(d, square)
    no_rule = ReduceSum<keepdims=0>(det)
}"""
"""Besides the loss: a value that depends on a weight through an operator without a gradient."""
MODELS = {
    "plain": HEAD.format(opset=17)
    + """g (float[n, 2] x) => (float loss)
    <float[2] w = {1, 2}, float low = {-9}, float[2, 2] square = {1, 2, 3, 4}> {
    h = Mul(x, w)
    y = Clip(h, low)
    loss = ReduceMean<keepdims=0>(y)"""
    + END,
    "opset 11, a scalar in a node, masks and statistics": HEAD.format(opset=11)
    + """g (float[n, 2] x) => (float loss)
    <float[2] w = {1, 2}, float[2] m = {0, 0}, float[2] v = {1, 1},
     float[2, 2] square = {1, 2, 3, 4}> {
    h = Mul(x, w)
    b = BatchNormalization(h, w, m, m, v)
    y = Dropout<ratio = 0.5>(b)
    loss = ReduceMean<keepdims=0>(y)"""
    + END,
    "weights in nodes": HEAD.format(opset=17)
    + """g (float[n, 2] x) => (float loss) {
    w = Constant<value = float[2] {1, 2}>()
    square = Constant<value = float[2, 2] {1, 2, 3, 4}>()
    half = Constant<value = float {0.5}>()
    h = Mul(x, w)
    y = Mul(h, half)
    loss = ReduceMean<keepdims=0>(y)"""
    + END,
    "weights in branches": HEAD.format(opset=17)
    + """g (float[n, 2] x, bool c) => (float loss)
    <float[2] w = {1, 2}, float[2, 2] square = {1, 2, 3, 4}> {
    h = Mul(x, w)
    y = If (c) <
        then_branch = t () => (float[n, 2] a) <float[2] u = {3, 4}> { a = Mul(h, u) },
        else_branch = e () => (float[n, 2] b) {
            u = Constant <value = float[2] {5, 6}> ()
            b = Mul(h, u)
        }
    >
    loss = ReduceMean<keepdims=0>(y)"""
    + END,
    "functions": HEAD.format(opset=17)
    + """g (float[n, 2] x) => (float loss)
    <float[2] w = {1, 2}, float[2, 2] square = {1, 2, 3, 4}> {
    y = local.twice(x, w)
    loss = ReduceMean<keepdims=0>(y)"""
    + END
    + """
    <domain: "local", opset_import: ["": 17]>
    twice (x, w) => (y) { h = Mul(x, w) y = Add(h, h) }""",
    "operators with a definition, pools with a window too many": HEAD.format(opset=18)
    + """g (float[1, 1, 4, 4] x) => (float loss)
    <float[2] w = {1, 2}, float[2, 2] square = {1, 2, 3, 4}> {
    p = MaxPool<kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1>(x)
    m = Mish(p)
    y = Mul(m, w)
    loss = ReduceMean<keepdims=0>(y)"""
    + END,
}


def parsed(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(MODELS[name])


def content(model: ir.Model) -> bytes:
    """Return all that is saved of a model, and the names and types of its values."""
    known = [(v.name, str(v.type), str(v.shape)) for n in model.graph for v in n.outputs]
    saved = amp.to_proto(model).SerializeToString(deterministic=True)
    return saved + repr((known, sorted(model.graph.initializers), model.metadata_props)).encode()


READ: dict[str, Callable[[ir.Model], Any]] = {
    "load": amp.load,
    "value": lambda m: amp.value(m, "loss"),
    "type and shape": lambda m: (amp.value(m, "y").dtype, amp.value(m, "y").shape),
    "training graph": training_graph,
    "builder": lambda m: Builder(m, scope="mine"),
    "arithmetic": lambda m: 2 * amp.value(m, "y") + 1,
    "labels that become an input": lambda m: amp.losses.mean_squared_error(m, "y", "labels"),
    "minimize": lambda m: amp.optimizers.Adam().minimize(amp.value(m, "loss")),
    "build_step": lambda m: build_step(
        amp.LossScaleOptimizer(amp.optimizers.Momentum(0.1, 0.9)).minimize(amp.value(m, "loss")),
        precision="float16",
    ),
    "rewrite": lambda m: amp.rewrite(m, weights="cast"),
    "export": lambda m: exported(m),
}


def exported(model: ir.Model) -> ir.Model:
    op = amp.optimizers.GradientDescent(1.0).minimize(amp.value(model, "loss"))
    with amp.TrainingSession(op) as session:
        return session.export()


def minimize_no_rule(model: ir.Model) -> None:
    amp.optimizers.Adam().minimize(amp.value(model, "no_rule"))


FAILING: dict[str, Callable[[ir.Model], Any]] = {
    "unknown name": lambda m: amp.value(m, "los"),
    "no name": lambda m: amp.value(m, 3),  # type: ignore[arg-type]
    "no gradient rule": minimize_no_rule,
    "no gradient rule, scaled": lambda m: amp.LossScaleOptimizer(
        amp.optimizers.Adam()
    ).compute_gradients(amp.value(m, "no_rule")),
    "unknown variable": lambda m: amp.optimizers.Adam().minimize(
        amp.value(m, "loss"), var_list=["none"]
    ),
    "no step counter": lambda m: amp.optimizers.Adam().minimize(
        amp.value(m, "loss"), global_step=amp.value(m, "x")
    ),
    "no gradients": lambda m: amp.optimizers.Adam().apply_gradients([(None, "w")]),
    "no axis": lambda m: amp.losses.softmax_cross_entropy(m, "y", "labels", axis=9),
    "no reduction": lambda m: amp.losses.mean_squared_error(m, "y", "labels", reduction="none of"),
    "unknown prediction": lambda m: amp.losses.mean_squared_error(m, "z", "labels"),
    "unknown precision": lambda m: amp.rewrite(m, precision="float8"),  # pyright: ignore[reportArgumentType]
    "no step": amp.TrainingSession,
    "unknown fetch": lambda m: build_step(
        amp.optimizers.Adam().minimize(amp.value(m, "loss")), "none"
    ),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12)
@given(calls=st.lists(st.sampled_from([*READ, *FAILING]), min_size=1, max_size=4))
def test_what_reads_and_what_fails_leaves_a_model_as_it_was(name: str, calls: list[str]) -> None:
    model = amp.load(parsed(name))
    before = content(model)
    for call in calls:
        if call in READ:
            READ[call](model)
        else:
            with pytest.raises(amp.AmpError):
                FAILING[call](model)
        assert content(model) == before


def trained(model: ir.Model, optimizer: Any) -> dict[str, np.ndarray]:
    """Return the state after two steps."""
    feeds: dict[str, Any] = {"x": np.array([[1, -2], [3, 1]], np.float32), "c": np.array(True)}
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss")), seed=3) as session:
        names = {v.name for v in model.graph.inputs}
        for _ in range(2):
            session.run({k: v for k, v in feeds.items() if k in names})
        return session.state_dict()


def momentum() -> Any:
    return amp.LossScaleOptimizer(amp.optimizers.Momentum(0.1, 0.9))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", [name for name in MODELS if "pools" not in name])
def test_an_optimizer_that_has_failed_trains_as_one_that_has_not(name: str) -> None:
    expected = trained(amp.load(parsed(name)), momentum())
    model, optimizer = amp.load(parsed(name)), momentum()
    loss = amp.value(model, "loss")
    with pytest.raises(GradientError, match="Det"):
        optimizer.minimize(amp.value(model, "no_rule"))
    with pytest.raises(amp.AmpError, match="none"):
        optimizer.minimize(loss, var_list=["none"])
    with pytest.raises(amp.AmpError, match="global step"):
        optimizer.minimize(loss, global_step=amp.value(model, "x"))
    found = trained(model, optimizer)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


def test_a_model_that_cannot_be_converted_stays_as_it_was() -> None:
    text = HEAD.format(opset=6) + (
        "g (float[2, 3, 4] x, float[3] s) => (float[2, 3, 4] loss) {"
        "    w = Constant<value = float[2] {1, 2}>()"
        "    loss = Add<broadcast = 1, axis = 1>(x, s) }"
    )
    model = amp.load(onnx.parser.parse_model(text))
    before = content(model)
    with pytest.raises(GradientError, match="opset 6"):
        amp.value(model, "loss")
    assert content(model) == before
