"""Operators whose constants the target cuts off stay float32."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

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
