"""Scaled values inside If, Loop and Scan: a Mul stands in the body that needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import amp_rewrite as amp

N = 32
GROWS = "p = MatMul({0}, w) q = Add(p, b) r = Add(q, b) u = Add(r, b)"
RESIDUAL = "n = LayerNormalization(v, s) p = MatMul(n, w) q = Add(p, b)"
LOOP = (
    "e = Loop(trips, yes, x) <body = t (int64 i, bool c, float[2,32] v) => "
    "(bool d, float[2,32] o) {{ d = Identity(c) {} }}>"
)
SCAN = (
    "z = Expand(zero, sh) f, e = Scan <num_scan_inputs: int = 1, body = t "
    "(float[2,32] v, float[2,32] xi) => (float[2,32] o, float[2,32] h) {{ {} }}> (z, x)"
)
IF = "e = If(g) <then_branch = t () => (float[2,32] a) {{ {} }}, "
IF += "else_branch = l () => (float[2,32] h) {{ {} }}>"

# name: nodes between x and y, where the first Mul stands and what it does.
CASES = {
    "what a Loop carries": (
        f"{LOOP.format(RESIDUAL + ' o = Add(v, q)')} y = LayerNormalization(e, s)",
        "x 0 -3",
    ),
    "inside a Loop": (
        LOOP.format(
            GROWS.format("v") + " a = Sigmoid(u) n = LayerNormalization(u, s) o = Add(a, n)"
        )
        + " y = MatMul(e, w)",
        "u -3 0",
    ),
    "what a Scan carries": (
        SCAN.format(RESIDUAL + " k = Add(q, xi) o = Add(v, k) h = LayerNormalization(o, s)")
        + " y = MatMul(e, w)",
        "xi 0 -3",
    ),
    "what a Scan stacks": (
        SCAN.format(RESIDUAL + " k = Add(q, xi) o = Add(v, k) h = Identity(o)")
        + " m = LayerNormalization(e, s) y = MatMul(m, w)",
        "xi 0 -3",
    ),
    "what a branch reads": (
        GROWS.format("x")
        + " "
        + IF.format("a = Tanh(u)", "h = LayerNormalization(u, s)")
        + " y = MatMul(e, w)",
        "u -3 0",
    ),
    "what a branch makes": (
        "p0 = MatMul(x, w) "
        + IF.format(GROWS.format("p0") + " a = Identity(u)", "h = Relu(p0)")
        + " n = LayerNormalization(e, s) m = Tanh(e) k = Add(n, m) y = MatMul(k, w)",
        "e -3 0",
    ),
    "a branch in a Loop": (
        LOOP.format(
            IF.replace("e = If", "k = If").format(
                GROWS.format("v") + " j = Tanh(u) n = LayerNormalization(u, s) a = Add(j, n)",
                "h = Tanh(v)",
            )
            + " o = Sigmoid(k)"
        )
        + " y = MatMul(e, w)",
        "u -3 0",
    ),
}


def model_of(body: str) -> onnx.ModelProto:
    shape = "float[4,2,32]" if "Scan" in body else "float[2,32]"
    flag = ", bool g" if "If(g)" in body else ""
    text = f"m ({shape} x{flag}) => ({shape} y) {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    bias = np.zeros(N, np.float32)
    bias[3] = 3e4
    weight = np.random.default_rng(0).normal(0, N**-0.5, (N, N)).astype(np.float32)
    held = {"w": weight, "b": bias, "s": np.ones(N, np.float32), "trips": np.array(4)}
    held |= {"yes": np.array(True), "zero": np.zeros(N, np.float32), "sh": np.array([2, N])}
    for name, array in held.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return {"x": x, **({"g": np.array(True)} if len(model.graph.input) > 1 else {})}


FAST = ("inside a Loop", "what a branch makes")
EACH = [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES]


@pytest.mark.parametrize("name", EACH)
def test_a_mul_stands_where_a_scaled_set_ends_in_a_body(name: str) -> None:
    body, border = CASES[name]
    model = model_of(body)
    made = amp.convert(model, [feeds(model)], precision="float16", overflow="scale", stress=False)
    assert made.ok, made.report.to_text()
    scaling = made.report.scaling
    assert scaling is not None
    assert not scaling.unscaled
    assert scaling.proof is not None
    assert scaling.proof.difference <= 1e-6
    first = scaling.borders[0]
    assert f"{first.value} {first.made} {first.read}" == border
    told = amp.explain(made.report, first.node)
    assert f"scaling added it: {first.value} is computed times 2^{first.made}, and read" in told
