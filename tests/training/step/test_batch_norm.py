"""BatchNormalization in training mode: spelled out in files, put back where they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import train_models
from onnx import TensorProto, parser

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.step.batch_norm import (
    spell_out_batch_norms,
)
from amp_rewrite.training.step.step import read_step

NETWORK = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float[N, 2] logits)
<float[3,4] w = {1,2,-1,1, 0,1,1,-2, 1,-1,2,0}, float[4] s = {1,1,2,1}, float[4] b = {0,1,0,0},
 float[4] m = {0,0,0,0}, float[4] v = {1,1,1,1}, float[4,2] u = {1,0, 0,1, 1,1, -1,1}>
{
    h = MatMul(x, w)
    n = BatchNormalization<epsilon = 0.01, momentum = 0.75>(h, s, b, m, v)
    p = BatchNormalization(n, s, b, m, v)
    r = Relu(p)
    logits = MatMul(r, u)
}"""

FEEDS = {
    "x": np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32),
    "t": np.array([0, 1, 0, 1, 1, 0]),
}


def train_op() -> TrainOp:
    model = amp.load(parser.parse_model(NETWORK))
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    return amp.optimizers.Momentum(0.1, 0.9).minimize(loss)


@pytest.fixture(params=["float32", "float16"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "step.onnx"
    save(amp.build_step(train_op(), precision=request.param), path)
    return path


def test_a_step_file_has_no_batch_normalization_in_training_mode(file: Path) -> None:
    proto = onnx.load(file)
    assert "BatchNormalization" not in {node.op_type for node in proto.graph.node}
    onnx.checker.check_model(proto, full_check=True)
    session: Any = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert np.isfinite(session.run(["loss"], FEEDS)[0])


def test_a_step_that_is_read_has_them_again(file: Path) -> None:
    found = [n for n in read_step(file).model.graph if n.op_type == "BatchNormalization"]
    assert len(found) == 2
    assert [n.attributes.get_float("momentum", 0.9) for n in found] == [0.75, pytest.approx(0.9)]
    assert found[0].attributes.get_float("epsilon") == pytest.approx(0.01)
    assert found[1].inputs[0] is found[0].outputs[0]


def test_a_file_trains_and_evaluates_as_its_train_op_does(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    save(amp.build_step(train_op(), ["logits"]), path)
    results: list[Any] = []
    for source in (train_op(), path):
        with amp.TrainingSession(source) as session:
            losses = [session.run(FEEDS)["loss"] for _ in range(4)]
            results.append((losses, session.evaluate(FEEDS, ["logits"])["logits"]))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_a_plain_runtime_computes_what_a_session_does(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    save(amp.build_step(train_op()), path)
    plain: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with amp.TrainingSession(train_op()) as session:
        expected = session.run(FEEDS)["loss"]
    np.testing.assert_allclose(plain.run(["loss"], FEEDS)[0], expected, rtol=1e-6)


def test_one_of_unknown_rank_stays() -> None:
    model = amp.load(
        parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[] x, float[3] s, float[3] v)'
            " => (float[] y) { y, m, n = BatchNormalization<training_mode = 1>(x, s, s, s, v) }"
        )
    )
    model.graph.inputs[0].shape = None
    spell_out_batch_norms(model)
    assert [node.op_type for node in model.graph] == ["BatchNormalization"]


def network() -> Any:
    """Return a network with two normalizations of channels and one of features: x (N, 3, 6, 5)."""
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", 3, 6, 5)
    t = net.input("t", TensorProto.INT64, "N")
    x = net.op("Relu", net.conv(x, "first", 3, 4))
    x = net.op("Tanh", net.conv(x, "second", 4, 8, step=2))
    x = net.linear(net.op("Flatten", x, axis=1), "hidden", 72, 6)
    parts = [("scale", 1), ("bias", 0), ("mean", 0.5), ("var", 2)]
    norm = [net.full(f"hidden.{part}", value, 6) for part, value in parts]
    x = net.op("BatchNormalization", x, *norm)
    net.loss(net.op("Identity", net.linear(x, "last", 6, 5), name="logits"), t, 5)
    return net.model("normalized")


def batch(seed: int, examples: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (examples, 3, 6, 5)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 5, examples)}


def scaled_of_statistics(mode: str) -> Any:
    scale = amp.DynamicLossScale(initial_loss_scale=2.0**10, increment_period=3)
    return amp.LossScaleOptimizer(optimizers.Momentum(0.05, 0.9), scale, conditional=mode)


KINDS: dict[str, Callable[[], Any]] = {
    "if": lambda: scaled_of_statistics("if"),
    "select": lambda: scaled_of_statistics("select"),
}


@pytest.mark.parametrize("kind", ["if", "select"])
def test_a_skipped_step_moves_no_running_statistics(kind: str) -> None:
    loss = amp.value(amp.load(network()), "loss")
    with amp.TrainingSession(KINDS[kind]().minimize(loss)) as session:
        session.run(batch(0))
        before = session.state_dict()
        overflowing = batch(1)
        overflowing["x"][0, 0, 0, 0] = np.inf
        session.run(overflowing)
        after = session.state_dict()
        assert after["loss_scale/skipped_steps"] == 1
        for name in (n for n in before if n.endswith((".mean", ".var", ".weight", ".scale"))):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        assert np.isfinite(session.run(batch(2))["loss"])
        assert all(np.isfinite(a).all() for a in session.state_dict().values())


def test_steps_after_a_variance_overflowed_are_as_before() -> None:
    loss = amp.value(amp.load(network()), "loss")
    with amp.TrainingSession(optimizers.GradientDescent(0.05).minimize(loss)) as session:
        session.run({**batch(0), "x": np.full_like(batch(0)["x"], 1e25) * batch(1)["x"]})
        assert np.isinf(session.state_dict()["first.var"]).all()
        losses = [session.run(batch(2))["loss"] for _ in range(5)]
        assert np.all(np.diff(losses) < 0)
