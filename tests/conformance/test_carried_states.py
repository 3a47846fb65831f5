"""States that a loop carries through arithmetic alone stay float32, and bounded cells do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from named_nodes import WAYS, low, model
from rewrite_text import parse, rewritten

import amp_rewrite as amp

RNG = np.random.default_rng(0)
A = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]) * 0.999
NUMBERS = {
    "a": np.kron(np.eye(4), A),
    "b": RNG.standard_normal((16, 8)) / 4,
    "c": RNG.standard_normal((8, 8)) / 2,
    "f": RNG.standard_normal((8, 8)) / 4,
    "pole": np.full(8, 0.999),
    "one": 1.0,
    "step": 0.01,
    "bias": np.linspace(1, 5, 8),
}

# Each makes n of the state x, (1, 8), and what a step is fed, e, (1, 8).
UNBOUNDED = {
    "MatMul": "p = MatMul(x, a) n = Add(p, e)",
    "Gemm": "n = Gemm(x, a, e)",
    "Mul": "p = Mul(x, pole) n = Add(p, e)",
    "integrator": "s = Mul(e, step) n = Sub(x, s)",
    "product": "g = Exp(e) n = Mul(x, g)",
    "moved": "t = Transpose(x) r = Transpose(t) p = MatMul(r, a) s = Sum(p, e) n = Identity(s)",
    "residual of a function": "p = MatMul(x, f) t = Tanh(p) n = Add(x, t)",
    "gate of constants": "g = Sigmoid(bias) p = Mul(g, x) n = Add(p, e)",
    "rectified": "p = MatMul(x, a) s = Add(p, e) n = Relu(s)",
    "clipped": "s = Add(x, e) n = Clip(s)",
    "Einsum": 'p = Einsum<equation = "ij,jk->ik">(x, a) n = Add(e, p)',
    "branches": "d = ReduceMax<keepdims = 0>(e) k = Greater(d, one) n = If (k) <"
    "then_branch = t () => (float[1,8] i) { p = MatMul(x, a) i = Add(p, e) },"
    "else_branch = o () => (float[1,8] j) { j = Identity(x) }>",
}
BOUNDED = {
    "recurrent cell": "p = MatMul(x, f) s = Add(p, e) n = Tanh(s)",
    "gated cell": "z0 = MatMul(x, f) z = Sigmoid(z0) k = Sub(one, z) q0 = MatMul(e, f) "
    "q = Tanh(q0) r = Mul(z, x) s = Mul(k, q) n = Add(r, s)",
    "normalised": "p = MatMul(x, f) s = Add(p, e) n = LayerNormalization(s, pole)",
    "divided by its norm": "p = MatMul(x, f) r = ReduceL2<axes = [-1]>(p) n = Div(p, r)",
    "layers": "p = MatMul(x, f) r = Relu(p) n = MatMul(r, f)",
    "moved": "n = Neg(x)",
    "the largest so far": "n = Max(x, e)",
}


def looped(body: str, loop: str, opset: int = 17) -> onnx.ModelProto:
    """Return a Scan or Loop whose body makes n of x and e; what is fed and read are layers."""
    turn = f"[feed] e = MatMul(u, b) {body} [read] y = MatMul(n, c) m = Identity(n)"
    if loop == "Scan":
        text = f"""g (float[T,1,16] us) => (float[T,1,8] ys) {{
            last, ys = Scan<num_scan_inputs = 1, body = step (float[1,8] x, float[1,16] u)
            => (float[1,8] m, float[1,8] y) {{ {turn} }}>(first, us) }}"""
    else:
        text = f"""g (float[1,16] u, int64 T) => (float[T,1,8] ys) {{
            last, ys = Loop<body = step (int64 i, bool go, float[1,8] x)
            => (bool on, float[1,8] m, float[1,8] y) {{ {turn} on = Identity(go) }}>(T, yes, first)
            }}"""
    return model(text, opset, first=np.ones((1, 8)), yes=np.array(True), **NUMBERS)


def carried(result: amp.RewriteResult) -> set[str]:
    """Return the operators of nodes that are float32 for a state."""
    nodes = result.report.nodes
    return {n.op for n in nodes if "carried-state" in {v.reason for v in n.variables.values()}}


@pytest.mark.share(3)
@pytest.mark.parametrize("loop", ["Scan", "Loop"])
@pytest.mark.parametrize("body", UNBOUNDED)
def test_a_state_that_nothing_bounds_stays_float32(body: str, loop: str) -> None:
    result = rewritten(looped(UNBOUNDED[body], loop), target="cuda")
    assert loop in carried(result)
    assert {"feed", "read"} <= low(result)
    if "MatMul(x, a)" in UNBOUNDED[body]:
        assert "MatMul" in carried(result)


@pytest.mark.parametrize("loop", ["Scan", "Loop"])
@pytest.mark.parametrize("body", BOUNDED)
def test_a_bounded_cell_is_left_alone(body: str, loop: str) -> None:
    result = rewritten(looped(BOUNDED[body], loop), target="cuda")
    assert not carried(result)
    products = {n.name for n in result.report.nodes if n.op == "MatMul"}
    assert products <= low(result)


@pytest.mark.parametrize("way", WAYS)
def test_a_filter_is_right_after_many_steps(way: str) -> None:
    source = looped(UNBOUNDED["MatMul"], "Scan", opset=22)
    result = rewritten(source, **WAYS[way])
    feeds = {"us": np.ones((200, 1, 16), np.float32)}
    wanted, found = (amp.evaluate(m, feeds)["ys"] for m in (source, result.model))
    error = np.linalg.norm(wanted - found) / np.linalg.norm(wanted)
    assert error < (0.001 if WAYS[way]["precision"] == "float16" else 0.008)
    assert {"feed", "read"} <= low(result)


def test_two_states_that_turn_each_other_stay_float32() -> None:
    source = parse(
        """<ir_version: 10, opset_import: ["" : 17]> g (float[T,1] u) => (float[T,1] ys)
        <float[1] p0 = {1}, float[1] v0 = {0}, float[1] w = {0.02}, float[1,1] c = {2}> {
        p1, v1, ys = Scan<num_scan_inputs = 1, body = step (float[1] p, float[1] v, float[1] e)
            => (float[1] v2, float[1] p2, float[1] y)
            { d = Mul(p, w) s = Sub(v, d) v2 = Add(s, e) p2 = Identity(p) y = MatMul(v2, c) }
        >(p0, v0, u) }"""
    )
    result = rewritten(source, target="schema")
    assert {"Sub", "Add", "Scan"} <= carried(result)
