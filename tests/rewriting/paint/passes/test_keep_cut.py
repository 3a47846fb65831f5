"""Operators whose constants the target cuts off stay float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.kernels.rounding_table import FACTOR, RECIPROCAL
from amp_rewrite.rewriting.paint.passes.keep_cut import keep_cut

HEADER = """<ir_version: 10, opset_import: ["" : 22]>
  g (float[4,4] x) => (float[4,4] y) <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1},
  float six = {6}, float four = {4}, float root = {1.41421354}, float third = {0.333}>"""


def kept(body: str, **options: object) -> set[str]:
    """Return the operators that a cut constant keeps in float32."""
    options = {"precision": "bfloat16", "target": "openvino", **options}
    text = f"{HEADER} {{ a = MatMul(x, w) {body} y = MatMul(b, w) }}"
    nodes = rewritten(text, **options).report.nodes
    return {n.op for n in nodes if "constant-cut" in {v.reason for v in n.variables.values()}}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("r = Relu(a) [cut] b = Div(r, six)", "Div"),
        ("[cut] b = Mul(a, third)", "Mul"),
        ("t = Transpose(w) p = MatMul(a, t) [cut] b = Div(p, six)", "Div"),
        ("t = Transpose(w) p = MatMul(a, t) [cut] b = Mul(p, third)", "Mul"),
        ("[cut] b = HardSigmoid(a)", "HardSigmoid"),
        ("[cut] b = LeakyRelu <alpha = 0.2> (a)", "LeakyRelu"),
    ],
)
def test_what_reads_a_cut_constant_is_kept(body: str, op: str) -> None:
    assert kept(body) == {op}
    assert not kept(body, allow_nodes=["cut"])


@pytest.mark.parametrize(
    "body",
    [
        "r = Relu(a) b = Div(r, four)",
        "b = Mul(a, four)",
        "r = Relu(a) b = Mul(r, third)",
        "b = LeakyRelu <alpha = 0.25> (a)",
        "d = Div(a, root) b = Erf(d)",
        "s = MatMul(a, a) b = Div(s, six)",
        's = Einsum <equation = "ij->ji"> (a) b = Mul(s, third)',
        "s = Gemm(a, a, w) b = Mul(s, third)",
    ],
)
def test_what_is_exact_or_rounded_is_not(body: str) -> None:
    assert not kept(body)


def test_other_targets_cut_nothing() -> None:
    assert not kept("[cut] b = Div(a, six)", target="schema")


CUT = {"Div": RECIPROCAL, "Mul": FACTOR, "HardSigmoid": "alpha", "LeakyRelu": "alpha"}
NUMBERS = {
    "w": np.eye(4),
    "six": 6.0,
    "four": 4.0,
    "third": 0.333,
    "pair": [2.0, 3.0, 4.0, 5.0],
    "powers": [0.0, -0.5, 4.0, 1.0],
    "mixed": [0.0, -0.5, 3.0, 1.0],
    "nil": 0.0,
    "minus": -4.0,
}


def details(body: str, **options: Any) -> dict[str, str | None]:
    """Return what nodes make that the pass keeps, all being low, and why."""
    model = model_of(f"g (float[4,4] x, float[4,4] z) => (float[N] y) {{ {body} }}", **NUMBERS)
    context = context_of(model, **{"low": BFLOAT16, "cut": CUT, **options})
    found = marks_of(keep_cut, context, painting_of(context))
    return {value: mark.detail for value, mark in found.items()}


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("y = Div(x, six)", "1 / 6"),
        ("y = Div(x, pair)", "1 / a constant"),
        ("y = HardSigmoid(x)", "alpha 0.2"),
        ("y = HardSigmoid<alpha = 0.3>(x)", "alpha 0.3"),
        ("y = LeakyRelu(x)", "alpha 0.01"),
        ("y = LeakyRelu<alpha = 0.7>(x)", "alpha 0.7"),
        ("m = MatMul(x, w) y = Mul(m, third)", "weights times a constant"),
        ("m = MatMul(x, w) y = Mul(third, m)", "weights times a constant"),
        ("m = MatMul(x, w) y = Div(m, six)", "1 / 6"),
        ("m = MatMul(w, x) y = Div(m, six)", "1 / 6"),
        ("m = Add(x, x) y = Div(m, six)", "1 / 6"),
        ("q = Div(x, six) y = Exp(q)", "1 / 6"),
    ],
)
def test_what_the_target_cuts_off_is_named(body: str, lost: str) -> None:
    assert [*details(body).values()] == [f"the target cuts {lost} off"]
