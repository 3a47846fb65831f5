"""A TrainOp written by hand: linear regression with momentum, its gradient nodes spelled out."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import numpy_helper, parser

from amp_rewrite.graph.io.load import load

FORWARD = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, float[N, 2] t) => (float loss) <float[4, 2] w, float[2] b> {
        h = MatMul (x, w)
        y = Add (h, b)
        d = Sub (y, t)
        s = Mul (d, d)
        loss = ReduceMean <keepdims: int = 0> (s)
    }"""

CLASSIFIER = """<ir_version: 8, opset_import: ["": 17]>
    classifier (float[N, 4] x, int64[N] t) => (float[N, 3] logits, float loss)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[3] b = {1, 0, 1}> {
        h = MatMul (x, w)
        logits = Add (h, b)
        loss = SoftmaxCrossEntropyLoss (logits, t)
    }"""

STEP = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, float[N, 2] t) => (float loss)
    <float[4, 2] w, float[2] b, float learning_rate = {0.5}, int64 global_step = {0},
     float[4, 2] momentum, int64 one = {1}, float two = {2}, float keep = {0.9},
     int64[1] rows = {0}>
    {
        h = MatMul (x, w)
        y = Add (h, b)
        d = Sub (y, t)
        s = Mul (d, d)
        loss = ReduceMean <keepdims: int = 0> (s)
        count = Size (d)
        countf = Cast <to: int = 1> (count)
        scale = Div (two, countf)
        gy = Mul (d, scale)
        xt = Transpose (x)
        gw = MatMul (xt, gy)
        gb = ReduceSum <keepdims: int = 0> (gy, rows)
        kept = Mul (momentum, keep)
        new_momentum = Add (kept, gw)
        dw = Mul (new_momentum, learning_rate)
        new_w = Sub (w, dw)
        db = Mul (gb, learning_rate)
        new_b = Sub (b, db)
        new_step = Add (global_step, one)
    }"""

UPDATES = {"w": "new_w", "b": "new_b", "w/Momentum": "new_momentum", "global_step": "new_step"}
STATES = {
    "w": ("w", "variable"),
    "b": ("b", "variable"),
    "w/Momentum": ("momentum", "slot"),
    "global_step": ("global_step", "global_step"),
    "learning_rate": ("learning_rate", "learning_rate"),
}


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(4, 2)).astype(np.float32),
        "b": rng.normal(size=2).astype(np.float32),
        "momentum": np.zeros((4, 2), np.float32),
    }


def model_of(text: str) -> ir.Model:
    proto = parser.parse_model(text)
    open_names = {entry.name for entry in proto.graph.value_info}
    del proto.graph.value_info[:]
    for name, array in weights().items():
        if name in open_names:
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return load(proto)


def train_op() -> Any:
    """Return an object with the attributes of a TrainOp."""
    model = model_of(STEP)
    made = {str(v.name): v for node in model.graph for v in node.outputs}
    values = {**model.graph.initializers, **made}
    states = {
        name: SimpleNamespace(
            name=name,
            value=values[value],
            initial=values[value].const_value,
            role=role,
            store=None,
            kept=False,
            slot=None,
        )
        for name, (value, role) in STATES.items()
    }
    graph = SimpleNamespace(
        model=model,
        source=model_of(FORWARD),
        forward=lambda: model_of(FORWARD),
        states=states,
        seeds=[],
        gradients={},
    )
    return SimpleNamespace(
        graph=graph,
        loss=SimpleNamespace(value=values["loss"]),
        updates={name: values[value] for name, value in UPDATES.items()},
        global_step="global_step",
        fetches={"loss": values["loss"]},
        loss_scale=None,
        accumulated=None,
        averages={},
    )


def batch(seed: int, size: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(size, 4)).astype(np.float32),
        "t": rng.normal(size=(size, 2)).astype(np.float32),
    }


def reference(steps: int, learning_rate: float = 0.5) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return the losses and the final state that numpy computes, in float64."""
    state = {name: array.astype(np.float64) for name, array in weights().items()}
    losses: list[float] = []
    for step in range(steps):
        data = batch(step)
        d = data["x"] @ state["w"] + state["b"] - data["t"]
        losses.append(float((d * d).mean()))
        gy = 2 / d.size * d
        state["momentum"] = 0.9 * state["momentum"] + data["x"].T @ gy
        state["w"] = state["w"] - learning_rate * state["momentum"]
        state["b"] = state["b"] - learning_rate * gy.sum(0)
    return losses, state
