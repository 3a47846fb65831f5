"""Operators between quantised tensors stay as they are; what lies outside is converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fused_operators import optimized_operators
from rewrite_text import assert_rewrites, parse, rewritten

import amp_rewrite as amp

BEHIND = """
        o = QuantizeLinear(c, s, z)
        d = DequantizeLinear(o, s, z)
        y = Identity(d)"""


def quantized(body: str) -> str:
    """Return a model in which `body` reads x, a, which is dequantised, and w, a constant."""
    weights, few = ", ".join(["0.5"] * 16), ", ".join(["51"] * 8)
    return f"""g (float[4,4] x) => (float[4,4] y)
    <float s = {{0.125}}, uint8 z = {{128}}, float[4,4] w = {{{weights}}},
     int64[2] shape = {{4, 4}}, uint4[4,4] few = {{{few}}}, uint4 fz = {{8}}> {{
        q = QuantizeLinear(x, s, z)
        a = DequantizeLinear(q, s, z)
        {body}
    }}"""


def is_kept(body: str, **options: Any) -> bool:
    """Tell whether the node called `op` is kept as a part of a quantised group."""
    result = rewritten(quantized(body), **options)
    variables = next(n for n in result.report.nodes if n.name == "op").variables.values()
    return {v.reason for v in variables} == {"quantized"}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "operator",
    ["MatMul(a, a)", "MatMul(a, w)", "Gemm(a, w)", "Sigmoid(a)", "Reshape(a, shape)", "Add(a, a)"],
)
def test_an_operator_between_quantised_tensors_is_not_touched(
    operator: str, precision: str
) -> None:
    text = quantized(f"c = {operator}{BEHIND}")
    assert_rewrites(text, text, precision=precision)


@pytest.mark.parametrize(
    "body",
    [
        f"e = Identity(a)\n[op] f = MatMul(e, w)\nc = Identity(f){BEHIND}",
        f"[op] f = MatMul(a, w)\nc = Relu(f){BEHIND}",
        f"f = MatMul(a, w)\n[op] c = Clip(f){BEHIND}",
        "[op] y = MatMul(a, a)",
        "[op] y = Gemm(a, w)",
    ],
    ids=["identity", "activated", "activation", "float-result", "gemm"],
)
def test_forms_of_a_quantised_group(body: str) -> None:
    assert is_kept(body)


def test_weights_of_a_few_bits_are_a_group_where_their_scales_cannot_be_low() -> None:
    body = "v = DequantizeLinear(few, s, fz)\n[op] y = MatMul(x, v)"
    assert is_kept(body, precision="bfloat16")
    assert not is_kept(body, precision="float16")


@pytest.mark.parametrize(
    "body",
    [
        f"[op] c = MatMul(a, x){BEHIND}",
        "[op] c = Sigmoid(a)\no = QuantizeLinear(c, s, z)\nd = DequantizeLinear(o, s, z)\n"
        "y = Add(c, d)",
        "[op] c = Sigmoid(a)\nt = Transpose(c)\ny = MatMul(t, c)",
        "c = MatMul(a, w)\n[op] y = MatMul(c, c)",
        f"[op] f = MatMul(a, w)\nc = Sigmoid(f)\ne = Relu(f)\ng = Add(c, e){BEHIND}".replace(
            "QuantizeLinear(c", "QuantizeLinear(g"
        ).replace("MatMul(a, w)", "Mul(a, w)"),
    ],
    ids=["float-operand", "second-reader", "float-readers", "behind-a-group", "two-activations"],
)
def test_what_is_not_a_quantised_group(body: str) -> None:
    assert not is_kept(body)


def test_what_lies_outside_is_converted() -> None:
    body = f"c = Sigmoid(a){BEHIND}".replace("Identity(d)", "MatMul(x, d)")
    result = rewritten(quantized(body))
    low = [
        n.op for n in result.report.nodes if any(v.dtype == "float16" for v in n.variables.values())
    ]
    assert low == ["MatMul"]
    assert len(result.report.casts) == 3


def test_the_report_names_the_neighbours() -> None:
    result = rewritten(
        quantized(f"[op] c = MatMul(a, a){BEHIND}")
        .replace("q =", "[q_in] q =")
        .replace("a = D", "[dq_in] a = D")
        .replace("o =", "[q_out] o =")
    )
    line = amp.explain(result, "op")
    assert line == "op (MatMul) stays float32: it is quantised: between dq_in and q_out"


def test_a_group_inside_a_subgraph_is_not_touched() -> None:
    text = """g (bool b, float[4,4] x) => (float[4,4] y)
    <float s = {0.125}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)
        a = DequantizeLinear(q, s, z)
        y = If(b) <
            then_branch = t () => (float[4,4] yt) {
                c = MatMul(a, a)
                o = QuantizeLinear(c, s, z)
                yt = DequantizeLinear(o, s, z)
            },
            else_branch = e () => (float[4,4] ye) {
                ye = Identity(a)
            }>
    }"""
    assert_rewrites(text, text)


def test_the_runtime_fuses_what_it_fused_before(tmp_path: Path) -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,2,4,4] x, float[1,2,4,4] t) => (float[1,2,4,4] y, float[1,2,4,4] u)
        <float s = {0.125}, uint8 z = {0}, int8[2,2,1,1] k = {1, -2, 3, 4}, int8 kz = {0}> {
            q = QuantizeLinear(x, s, z)
            a = DequantizeLinear(q, s, z)
            v = DequantizeLinear(k, s, kz)
            c = Conv(a, v)
            r = Relu(c)
            o = QuantizeLinear(r, s, z)
            b = DequantizeLinear(o, s, z)
            m = Mul(b, a)
            p = QuantizeLinear(m, s, z)
            y = DequantizeLinear(p, s, z)
            u = MatMul(t, t)
        }"""
    )
    result = rewritten(model)
    assert result.report.summary.nodes_converted == 1
    before = optimized_operators(model, tmp_path)
    after = optimized_operators(amp.to_proto(result.model), tmp_path)
    assert before["QLinearConv"] == before["QLinearMul"] == 1
    after.pop("Cast", None)
    assert after == before
