"""Sums of scores and large constants, or places, stay float32 with the Softmax behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_biases import keep_biases

N = 32
RAMP = -np.arange(N, dtype=np.float64)[None]
CAUSAL = np.triu(np.full((N, N), -1e9), 1)
CONSTANTS: dict[str, Any] = {
    "ramp": RAMP,
    "masked": RAMP + CAUSAL,
    "wide": np.concatenate([RAMP, RAMP], -1),
    "slope": 0.5,
    "places": 2 * RAMP,
    "causal": CAUSAL,
    "allowed": CAUSAL == 0,
    "lowest": -3.4e38,
    "shifted": np.where(np.arange(N)[None] < 16, 0.0, -100.0),
    "learned": np.random.default_rng(0).normal(0, 1, (N, N)),
    "end": np.array([N]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "nil": 0.0,
    "unit": 1.0,
    "length": float(N),
}
GRAPH = f"g (float[{N},{N}] s) => (float[{N},{N}] y)"

KEPT = {
    "constant": ("a = Add(s, ramp) y = Softmax(a)", "ay"),
    "turned round": ("a = Add(ramp, s) y = Softmax(a)", "ay"),
    "subtracted": ("r = Neg(ramp) a = Sub(s, r) y = Softmax(a)", "ary"),
    "with fills": ("a = Add(s, masked) y = LogSoftmax(a)", "ay"),
    "cut": ("r = Slice(wide, zero, end, one) a = Add(s, r) y = Softmax(a)", "ary"),
    "times a slope": ("r = Mul(places, slope) a = Add(s, r) y = Softmax(a)", "ary"),
    "a range": ("t = Range(nil, length, unit) r = Neg(t) a = Add(s, r) y = Softmax(a)", "ary"),
    "a mask behind": ("a = Add(s, ramp) b = Where(allowed, a, lowest) y = Softmax(b)", "aby"),
    "another sum": ("a = Add(s, ramp) b = Add(a, causal) y = Softmax(b)", "aby"),
    "written out": ("a = Add(s, ramp) m = ReduceMax(a, one) d = Sub(a, m) y = Exp(d)", "amdy"),
}


def kept(body: str, low: DType = FLOAT16, graph: str = GRAPH) -> set[str]:
    """Return what nodes make that is kept, all being low."""
    context = context_of(model_of(f"{graph} {{ {body} }}", **CONSTANTS), low)
    return {*marks_of(keep_biases, context, painting_of(context))}


@pytest.mark.parametrize("low", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("name", KEPT)
def test_large_biases_are_kept_with_the_softmax(name: str, low: DType) -> None:
    body, expected = KEPT[name]
    assert kept(body, low) == {*expected}


@pytest.mark.parametrize("opset", [11, 13, 17, 23])
@pytest.mark.parametrize("shape", ["32", "32,32", "2,32,32", "B,H,S,32"])
def test_opset_and_rank_do_not_matter(opset: int, shape: str) -> None:
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    graph = f"{head} g (float[{shape}] s) => (float[{shape}] y)"
    assert kept("a = Add(s, ramp) y = Softmax(a)", graph=graph) == {*"ay"}


def test_branches_and_loops_are_the_same() -> None:
    branch = f"""y = If(c) <then_branch = t () => (float[{N},{N}] o) {{
        a = Add(s, ramp) o = Softmax(a) }}, else_branch = e () => (float[{N},{N}] p) {{
        p = Identity(s) }}>"""
    graph = f"g (float[{N},{N}] s, bool c) => (float[{N},{N}] y)"
    assert kept(branch, graph=graph) == {*"ao"}
    turn = f"""y = Loop(n, c, s) <body = b (int64 i, bool d, float[{N},{N}] t) =>
        (bool e, float[{N},{N}] o) {{ e = Identity(d) a = Add(t, ramp) o = Softmax(a) }}>"""
    graph = f"g (float[{N},{N}] s, bool c, int64 n) => (float[{N},{N}] y)"
    assert kept(turn, graph=graph) == {*"ao"}


def test_places_of_unknown_length_are_kept() -> None:
    result = rewritten(
        model_of(
            """g (float[S,8] x) => (float[S,8] y) { q = MatMul(x, w) k = Transpose(q)
            s = MatMul(q, k) d = Shape(x) n = Gather(d, nil) t = Range(nil, n, unit)
            f = Cast<to = 1>(t) r = Mul(f, slope) [added] a = Add(s, r) [soft] p = Softmax(a)
            y = MatMul(p, q) }""",
            w=np.eye(8) / 2,
            nil=np.array(0),
            unit=np.array(1),
            slope=-0.5,
        )
    )
    float32 = {n.name for n in result.report.nodes if n.variables and "T" in n.variables}
    reasons = {n.name: n.variables["T"].reason for n in result.report.nodes if n.name in float32}
    assert reasons["soft"] in ("count", "large-bias")
    assert reasons["MatMul_2"] == "allow-list"


def test_the_mask_of_an_attention_counts() -> None:
    graph = "g (float[1,2,32,8] q, float[1,2,32,8] k, float[1,2,32,8] v) => (float[1,2,32,8] y)"
    head = '<ir_version: 11, opset_import: ["" : 23]>'
    assert kept("y = Attention(q, k, v, ramp)", graph=f"{head} {graph}") == {"y"}
    assert not kept("y = Attention(q, k, v, causal)", graph=f"{head} {graph}")


@pytest.mark.parametrize(
    "body",
    [
        "a = Add(s, learned) y = Softmax(a)",
        "a = Add(s, causal) y = Softmax(a)",
        "a = Add(s, shifted) y = Softmax(a)",
        "a = Add(s, ramp) y = Sigmoid(a)",
        "y = Softmax(s)",
        "a = Add(ramp, places) y = Softmax(a)",
    ],
)
def test_other_sums_stay_low(body: str) -> None:
    assert not kept(body)
