"""Training steps of recurrent models, whose sequences may have any length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part

HIDDEN, IN = 4, 3
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def recurrent_model(op: str, attributes: str = "") -> ir.Model:
    """Return logits (N, 2) of the last state of a bidirectional layer over x (T, N, 3)."""
    size, rng = GATES[op] * HIDDEN, np.random.default_rng(5)
    weights = {
        "w": (2, size, IN),
        "r": (2, size, HIDDEN),
        "b": (2, 2 * size),
        "head": (2 * HIDDEN, 2),
    }
    states = "last, memory" if op == "LSTM" else "last"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[T, N, 3] x, int32[N] lengths) => (float[N, 2] y) {{
            [layer] all, {states} = {op}<
                hidden_size = {HIDDEN}, direction = "bidirectional" {attributes}
            >(x, w, r, b, lengths)
            turned = Transpose<perm = [1, 0, 2]>(last)
            flat = Flatten(turned)
            y = MatMul(flat, head)
        }}"""
    )
    for name, shape in weights.items():
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


def batch(steps: int, size: int) -> dict[str, Any]:
    """Return sequences of different lengths, the first of which has none."""
    rng = np.random.default_rng(steps)
    return {
        "x": rng.standard_normal((steps, size, IN)).astype(np.float32),
        "lengths": np.linspace(0, steps, size).astype(np.int32),
        "t": np.linspace(-1, 1, 2 * size).astype(np.float32).reshape(size, 2),
    }


BATCHES = [batch(5, 3), batch(1, 2), batch(9, 4), batch(0, 2), batch(5, 1)]


def losses(op: str, precision: str, scaled: bool) -> list[float]:
    model = recurrent_model(op)
    loss = amp.losses.mean_squared_error(model, "y", "t")
    optimizer: Any = amp.optimizers.Momentum(0.1)
    optimizer = amp.LossScaleOptimizer(optimizer) if scaled else optimizer
    train_op = optimizer.minimize(loss)
    emulate = precision != "float32"
    with amp.TrainingSession(train_op, precision=precision, emulate=emulate) as session:
        return [float(session.run(feeds)["loss"]) for feeds in BATCHES * 4]


@pytest.mark.share(3)
@pytest.mark.parametrize("op", GATES)
def test_a_recurrent_model_trains_on_any_length_and_alike_in_float16(op: str) -> None:
    exact, low = losses(op, "float32", scaled=False), losses(op, "float16", scaled=True)
    assert np.isfinite(exact).all()
    assert exact[-5] < 0.9 * exact[0]  # of the same batch
    np.testing.assert_allclose(low, exact, rtol=0.01)


def test_a_step_of_a_recurrent_model_computes_its_loops_in_float16_and_sums_in_float32() -> None:
    model = recurrent_model("GRU", ", linear_before_reset = 1")  # has a bias inside the turns
    loss = amp.losses.mean_squared_error(model, "y", "t")
    train_op = amp.LossScaleOptimizer(amp.optimizers.Momentum(0.1)).minimize(loss)
    model = amp.build_step(train_op, precision="float16")
    loops = [node for node in model.graph if node.op_type == "Loop"]
    bodies = [loop.attributes["body"].as_graph() for loop in loops]
    assert len(bodies) == 4  # forward and backward, in two directions
    nodes = [node for body in bodies for node in body]
    products = [node for node in nodes if node.op_type == "Gemm"]
    assert {node.outputs[0].dtype for node in products} == {ir.DataType.FLOAT16}
    weights = set(model.graph.initializers.values())
    assert not any(node.op_type == "Cast" and node.inputs[0] in weights for node in nodes)
    sums = [node for node in nodes if node.metadata_props.get(PART_KEY) == Part.SUM]
    assert {node.outputs[0].dtype for node in sums} == {ir.DataType.FLOAT}


def test_the_exported_model_has_the_recurrent_operator_again(tmp_path: Path) -> None:
    model, path = recurrent_model("LSTM"), tmp_path / "trained.onnx"
    train_op = amp.optimizers.Momentum(0.1).minimize(amp.losses.mean_squared_error(model, "y", "t"))
    feeds = BATCHES[0]
    with amp.TrainingSession(train_op) as session:
        session.run(feeds)
        expected = session.evaluate(feeds, fetches=["y"])["y"]
        session.export(path)
    runtime: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = runtime.run(["y"], {name: feeds[name] for name in ("x", "lengths")})
    assert next(iter(amp.load(path).graph)).op_type == "LSTM"
    np.testing.assert_allclose(found, expected, rtol=FLOAT32.rtol, atol=FLOAT32.atol)
