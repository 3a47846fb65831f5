"""Models in the standard's own training format, written by hand, and their numpy counterparts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

HEADER = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.preview.training" : 1]>'

MLP = """
mlp (float[N, 3] X) => (float[N, 2] Y)
<float[3, 8] W1, float[8] B1, float[8, 2] W2, float[2] B2>
{
    A = MatMul(X, W1)
    P = Add(A, B1)
    H = Relu(P)
    Q = MatMul(H, W2)
    Y = Add(Q, B2)
}
"""

LOSS = """
    D = Sub(Y, T)
    S = Mul(D, D)
    L = ReduceMean<keepdims = 0>(S)
    G1, G2, G3, G4 = ai.onnx.preview.training.Gradient
        <xs = ["W1", "B1", "W2", "B2"], zs = ["X", "T"], y = "L">(W1, B1, W2, B2, X, T)
"""

ADAM = f"""
adam (float[N, 2] T) => (
    float L, float[3, 8] W1_new, float[8] B1_new, float[8, 2] W2_new, float[2] B2_new,
    float[3, 8] V1_new, float[8] V2_new, float[8, 2] V3_new, float[2] V4_new,
    float[3, 8] H1_new, float[8] H2_new, float[8, 2] H3_new, float[2] H4_new, int64 step_new)
<float R = {{0.05}}, int64 step = {{0}}, int64 one = {{1}},
 float[3, 8] V1, float[8] V2, float[8, 2] V3, float[2] V4,
 float[3, 8] H1, float[8] H2, float[8, 2] H3, float[2] H4>
{{{LOSS}
    step_new = Add(step, one)
    W1_new, B1_new, W2_new, B2_new, V1_new, V2_new, V3_new, V4_new, H1_new, H2_new, H3_new, H4_new
        = ai.onnx.preview.training.Adam<alpha = 0.9, beta = 0.99, epsilon = 1e-6>
        (R, step_new, W1, B1, W2, B2, G1, G2, G3, G4, V1, V2, V3, V4, H1, H2, H3, H4)
}}
"""

INITIALIZATION = """
start () => (float[3, 8] w1, float[8, 2] w2, int64 zero)
{
    w1 = RandomNormal<shape = [3, 8], seed = 1.0, scale = 0.5>()
    w2 = RandomNormal<shape = [8, 2], seed = 2.0, scale = 0.5>()
    zero = Constant<value = int64 {0}>()
}
"""

SHAPES = {"1": (3, 8), "2": (8,), "3": (8, 2), "4": (2,)}
WEIGHTS = {"W1": "1", "B1": "2", "W2": "3", "B2": "4"}


def graph(text: str, **initializers: Any) -> onnx.GraphProto:
    """Parse a graph; the initializers that the text only declares get the given values."""
    model = parser.parse_model(HEADER + text)
    declared = [info.name for info in model.graph.value_info if info.name in initializers]
    kept = [info for info in model.graph.value_info if info.name not in declared]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    for name, array in initializers.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model.graph


def model_of(
    inference: onnx.GraphProto,
    algorithm: onnx.GraphProto,
    updates: dict[str, str],
    initialization: onnx.GraphProto | None = None,
    initial: dict[str, str] | None = None,
) -> onnx.ModelProto:
    """Return a model with one training_info."""
    model = onnx.ModelProto(ir_version=10, producer_name="by hand")
    model.opset_import.add(domain="", version=18)
    model.opset_import.add(domain="ai.onnx.preview.training", version=1)
    model.graph.CopyFrom(inference)
    add_training_info(model, algorithm, updates, initialization, initial)
    return model


def add_training_info(
    model: onnx.ModelProto,
    algorithm: onnx.GraphProto,
    updates: dict[str, str],
    initialization: onnx.GraphProto | None = None,
    initial: dict[str, str] | None = None,
) -> None:
    info = model.training_info.add()
    info.algorithm.CopyFrom(algorithm)
    if initialization is not None:
        info.initialization.CopyFrom(initialization)
    for key, value in (initial or {}).items():
        info.initialization_binding.add(key=key, value=value)
    for key, value in updates.items():
        info.update_binding.add(key=key, value=value)


def mlp() -> onnx.GraphProto:
    rng = np.random.default_rng(3)
    weights = {
        name: (rng.standard_normal(SHAPES[slot]) * 0.5).astype(np.float32)
        for name, slot in WEIGHTS.items()
    }
    return graph(MLP, **weights)


def adam_mlp() -> onnx.ModelProto:
    """Return an MLP that Adam trains, initialized by random numbers."""
    slots = {f"{kind}{n}": np.zeros(SHAPES[n], np.float32) for kind in "VH" for n in SHAPES}
    updates = {name: f"{name}_new" for name in (*WEIGHTS, *slots, "step")}
    initial = {"W1": "w1", "W2": "w2", "step": "zero"}
    return model_of(mlp(), graph(ADAM, **slots), updates, graph(INITIALIZATION), initial)
