"""Values that gradients compute again: which, when, and that nothing else changes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.metadata_keys import RECOMPUTED_KEY
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.optimizers import Adam, GradientDescent
from amp_rewrite.runtimes.ort.binding import Binding

RANDOM = np.random.default_rng(4)
FEEDS = {"x": RANDOM.normal(size=(4, 8)).astype(np.float32)}


def network() -> ir.Model:
    """Return four branches with a softmax in each."""
    branch = """
        p{0} = Softmax(h{0})
        u{0} = MatMul(p{0}, w)
        s{0} = Tanh(u{0})
        d{0} = MatMul(s{0}, v)
        h{1} = Add(h{0}, d{0})"""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 8] x) => (float loss) {{
        h0 = MatMul(x, w) {"".join(branch.format(i, i + 1) for i in range(4))}
        y = MatMul(h4, v)
        q = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(q)
    }}"""
    return with_weights(text)


def with_weights(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    for seed, name in enumerate("wv"):
        array = np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return amp.load(proto)


def losses(model: ir.Model, recompute: Any, optimizer: Any = None, **more: Any) -> list[float]:
    optimizer = Adam(0.01) if optimizer is None else optimizer
    op = optimizer.minimize(amp.value(model, "loss"), recompute=recompute)
    with amp.TrainingSession(op, **more) as session:
        return [float(session.run(FEEDS)["loss"]) for _ in range(4)]


def repeated(model: ir.Model) -> dict[str, ir.Node]:
    """Return the name of an original -> the node that repeats it."""
    found = {n.metadata_props.get(RECOMPUTED_KEY): n for n in model.graph}
    return {name: node for name, node in found.items() if name is not None}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "which", ["every block", "every 2 blocks", "every 3 blocks", lambda node: node.op_type != "Add"]
)
def test_training_is_the_same(which: Any) -> None:
    expected = losses(network(), None)
    np.testing.assert_allclose(losses(network(), which), expected, rtol=1e-5)


def test_nothing_of_a_copy_can_run_before_its_gradient_arrives() -> None:
    op = Adam(0.01).minimize(amp.value(network(), "loss"), recompute="every 2 blocks")
    step = amp.build_step(op)
    copies = repeated(step)
    assert len(copies) > 8
    last = next(n for n in step.graph if n.outputs[0].name == "y")
    for node in copies.values():
        assert last in ancestors([node.outputs[0]]), node.name


def test_the_runtime_keeps_the_copies(tmp_path: Any) -> None:
    counts = {}
    for which in (None, "every block"):
        op = Adam(0.01).minimize(amp.value(network(), "loss"), recompute=which)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        amp.save(amp.build_step(op), tmp_path / "step.onnx")
        onnxruntime.InferenceSession(tmp_path / "step.onnx", options)
        nodes = onnx.load(tmp_path / "optimized.onnx").graph.node
        counts[which] = sum(n.op_type in ("Softmax", "Tanh") for n in nodes)
    assert (counts[None], counts["every block"]) == (8, 16)


def dropout_model() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 8] x) => (float loss) <float ratio = {0.5}> {
        a = MatMul(x, w)
        d = Dropout(a, ratio)
        b = Tanh(d)
        e = Dropout(b, ratio)
        c = MatMul(e, v)
        k = Tanh(c)
        y = MatMul(k, w)
        s = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(s)
    }"""
    return with_weights(text)


@pytest.mark.share(3)
@pytest.mark.parametrize("which", ["every block", "every 2 blocks", lambda _: True])
def test_dropout_drops_the_same_again(which: Any) -> None:
    found = []
    for recompute in (None, which):
        loss = amp.value(dropout_model(), "loss")
        op = GradientDescent(0.1).minimize(loss, recompute=recompute)
        with amp.TrainingSession(op, seed=3) as session:
            for _ in range(3):
                session.run(FEEDS)
            found.append(session.state_dict())
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-5, atol=1e-6)


def normalized() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 8] x) => (float loss) <float[8] one = {1, 1, 1, 1, 1, 1, 1, 1},
        float[8] bias = {0, 0, 0, 0, 0, 0, 0, 1}, float[8] mean = {0, 0, 0, 0, 0, 0, 0, 1},
        float[8] var = {1, 1, 1, 1, 1, 1, 1, 1}> {
        a = MatMul(x, w)
        d = Tanh(a)
        c = MatMul(d, v)
        e = BatchNormalization(c, one, bias, mean, var)
        k = Tanh(e)
        y = MatMul(k, w)
        s = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(s)
    }"""
    return with_weights(text)


@pytest.mark.parametrize("conditional", [None, "if", "select"])
def test_running_statistics_move_once(
    conditional: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for which in (None, lambda node: node.op_type != "MatMul"):
        optimizer: Any = GradientDescent(0.1)
        if conditional is not None:
            optimizer = amp.LossScaleOptimizer(optimizer, "dynamic", conditional=conditional)
        op = optimizer.minimize(amp.value(normalized(), "loss"), recompute=which)
        with amp.TrainingSession(op) as session:
            for _ in range(3):
                session.run(FEEDS)
            found.append(session.state_dict())
            with monkeypatch.context() as patch:
                run = Binding.run

                def interrupted(*given: Any, run: Any = run) -> None:
                    run(*given)
                    raise KeyboardInterrupt

                patch.setattr(Binding, "run", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    session.run(FEEDS)
            for name, array in session.state_dict().items():
                np.testing.assert_array_equal(array, found[-1][name], err_msg=name)
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("conditional", ["if", "select"])
def test_low_precision_and_loss_scaling_go_with_it(conditional: str) -> None:
    found = []
    for which in (None, "every 2 blocks"):
        optimizer = amp.LossScaleOptimizer(Adam(0.01), "dynamic", conditional=conditional)
        found.append(losses(network(), which, optimizer, precision="float16", emulate=True))
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3)


def test_a_step_file_and_evaluation_are_as_before(tmp_path: Any) -> None:
    op = Adam(0.01).minimize(amp.value(network(), "loss"), recompute="every block")
    amp.save(amp.build_step(op), tmp_path / "step.onnx")
    with amp.TrainingSession(tmp_path / "step.onnx") as session:
        before = float(session.evaluate(FEEDS)["loss"])
        assert float(session.run(FEEDS)["loss"]) == pytest.approx(before, rel=1e-6)
        assert not repeated(session.export())


def names() -> ir.Model:
    model = network()
    for node in model.graph:
        node.name = f"/{node.outputs[0].name}/{node.op_type}"
    return model


@pytest.mark.parametrize("choice", ["*/Softmax", re.compile("Softmax$"), ["*/Softmax"]])
def test_nodes_are_chosen_by_name(choice: Any) -> None:
    model = names()
    amp.recompute(model, choice)
    op = Adam(0.01).minimize(amp.value(model, "loss"))
    assert {node.op_type for node in repeated(amp.build_step(op)).values()} == {"Softmax"}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("*/Softmux", r"the pattern matches no node; found '\*/Softmux'; expected .*Softmax"),
        ("every 0 blocks", "impossible number of blocks"),
        ([], "no nodes are chosen"),
        (7, "not a choice of nodes"),
    ],
)
def test_an_impossible_choice_is_refused(choice: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.recompute(names(), choice)


def test_a_network_of_one_segment_has_nothing_to_compute_again() -> None:
    with pytest.raises(OptionError, match=r"nothing to compute again.*blocks, 99 of which"):
        losses(network(), "every 99 blocks")


def test_it_is_too_late_behind_gradients() -> None:
    model = network()
    losses(model, None)
    with pytest.raises(OptionError, match="gradients have been computed"):
        amp.recompute(model, "every block")
