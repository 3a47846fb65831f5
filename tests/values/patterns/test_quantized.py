"""Operators between quantised tensors are one on integers; near misses are not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from interval_models import model_of
from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns.quantized import quantized_groups

INPUTS = """uint8[2,2] x, uint8[2,2] z, float[2,2] f, bool[2,2] b, float16[2,2] h"""
CONSTANTS = """float s = {0.5}, float k = {3}, uint8[2,2] w = {1, 2, 3, 4}"""
FOUR_BITS = {"v": np.array([[1, 2], [3, 4]], ml_dtypes.int4)}

Found = tuple[list[str], str, str, bool]


def groups_in(body: str, made: str = "uint8[2,2] y", front: bool = True) -> list[Found]:
    """Return nodes, first, last and whether an operand is kept, all by the names of outputs."""
    read = "dx = DequantizeLinear(x, s) dz = DequantizeLinear(z, s) dw = DequantizeLinear(w, s)"
    read += " dv = DequantizeLinear(v, s)"
    body = f"{read if front else ''} {body}"
    model = model_of(body, INPUTS, constants=CONSTANTS, made=made, arrays=FOUR_BITS)
    graph = build_type_graph(read_flat(model))
    flat = graph.flat

    def name(node: int) -> str:
        return "" if node == ABSENT else flat.value_names[flat.outputs_of(node)[0]]

    return [
        ([name(n) for n in group.nodes], name(group.first), name(group.last), group.keeps_operand)
        for group in quantized_groups(graph)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c = Add(dx, dz) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("c = Mul(k, dz) y = QuantizeLinear(c, s)", (["c"], "dz", "y", False)),
        ("i = Identity(k) c = Mul(i, dz) y = QuantizeLinear(c, s)", (["c"], "dz", "y", False)),
        ("c = Where(b, dx, dz) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("i = Identity(dx) c = Abs(i) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("c = Abs(dx) i = Identity(c) y = QuantizeLinear(i, s)", (["c"], "dx", "y", False)),
        ("c = Clip(dx, , k) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("c = com.microsoft.Gelu(dx) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("c = Abs(dx) r = Relu(c) y = QuantizeLinear(r, s)", (["c", "r"], "dx", "y", False)),
        ("c = Abs(dx) r = Clip(c, k) y = QuantizeLinear(r, s)", (["c", "r"], "dx", "y", False)),
        (
            "c = Abs(dx) i = Identity(c) r = Relu(i) y = QuantizeLinear(r, s)",
            (["c", "r"], "dx", "y", False),
        ),
        ("y = MatMul(dx, dz)", (["y"], "dx", "", False)),
        ("y = Gemm(dx, dz, k)", (["y"], "dx", "", False)),
        ("c = MatMul(dx, dz) y = Exp(c)", (["c"], "dx", "", False)),
        ("c = MatMul(dx, dw) y = QuantizeLinear(c, s)", (["c"], "dx", "y", False)),
        ("y = MatMul(f, dv)", (["y"], "dv", "", True)),
        ("y = MatMul(dx, dv)", (["y"], "dv", "", False)),
        ("y = MatMul(k, dv)", (["y"], "dv", "", False)),
        ("c = MatMul(f, dv) y = QuantizeLinear(c, s)", (["c"], "dv", "", True)),
    ],
)
def test_what_stands_between_quantised_tensors_is_one_operator(body: str, expected: Found) -> None:
    assert groups_in(body) == [expected]


@pytest.mark.parametrize(
    "body",
    [
        "c = Add(dx, f) y = QuantizeLinear(c, s)",
        "c = Clip(dx, , f) y = QuantizeLinear(c, s)",
        "c = Abs(f) y = QuantizeLinear(c, s)",
        "e = Exp(f) c = Add(dx, e) y = QuantizeLinear(c, s)",
        "c = Abs(dx) y = custom.QuantizeLinear(c, s)",
        "d = custom.DequantizeLinear(x, s) c = Abs(d) y = QuantizeLinear(c, s)",
        "c = Abs(dx) y = Exp(c)",
        "y = Abs(dx)",
        "c = Abs(dx) e = Exp(c) y = QuantizeLinear(c, s)",
        "c = Abs(dx) r = Relu(c) e = Exp(c) y = QuantizeLinear(r, s)",
        "c = Abs(dx) r = Relu(c) y = QuantizeLinear(r, s) e = Exp(r)",
        "c, e = Split<num_outputs = 2>(dx) y = QuantizeLinear(c, s) r = Exp(e)",
        "y = MatMul(f, dw)",
        "y = MatMul(dv, f)",
        "y = Gemm(f, dv)",
        "y = MatMul(dx, f)",
        "y = custom.MatMul(dx, dz)",
        "y = QuantizeLinear(dx, s)",
        "c = Cast<to = 10>(dx) y = Abs(c)",
    ],
)
def test_what_reads_or_gives_anything_else_is_not(body: str) -> None:
    last = body.rpartition("y = ")[2]
    type_ = {"Q": "uint8", "S": "int64"}.get(last[0], "float16" if "to = 10" in body else "float")
    assert groups_in(body, f"{type_}[N] y") == []


def test_a_result_that_leaves_the_model_is_not_quantised_alone() -> None:
    body = "c = Abs(dx) y = QuantizeLinear(c, s)"
    assert groups_in(body, "uint8[2,2] y, float[2,2] c") == []
    body = "c = Abs(dx) r = Relu(c) y = QuantizeLinear(r, s)"
    assert groups_in(body, "uint8[2,2] y, float[2,2] c") == []
    assert groups_in(body, "uint8[2,2] y, float[2,2] r") == []


def test_groups_come_in_execution_order() -> None:
    body = """c = Abs(dz) q = QuantizeLinear(c, s) d = DequantizeLinear(q, s)
        e = Add(dx, d) y = QuantizeLinear(e, s)"""
    assert groups_in(body) == [(["c"], "dz", "q", False), (["e"], "dx", "y", False)]


def test_a_model_without_quantised_tensors_has_none() -> None:
    assert groups_in("c = MatMul(f, f) y = QuantizeLinear(c, s)", front=False) == []


def test_what_is_quantised_inside_a_branch_stays_there() -> None:
    body = """y = If(n) <
        then_branch = t () => (float[2,2] ty) { ty = MatMul(dx, dz) },
        else_branch = e () => (float[2,2] ey) { ey = Abs(dx) }>"""
    assert groups_in(f"n = IsNaN(k) {body}", "float[2,2] y") == [(["ty"], "dx", "", False)]


def test_a_loop_and_a_function_are_no_operators() -> None:
    body = """l = Loop(n, , dx) <body = b (int64 i, bool c, float[2,2] e) => (bool o, float[2,2] r)
        { o = Identity(c) r = Exp(e) }> y = QuantizeLinear(l, s)"""
    assert groups_in(f"n = Size(x) {body}") == []
    text = """<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>
        g (uint8[2] x) => (uint8[2] y) <float s = {0.5}> {
            d = DequantizeLinear(x, s) c = custom.F(d) y = QuantizeLinear(c, s) }
        <domain: "custom", opset_import: ["" : 21]> F (p) => (q) { q = Exp(p) }"""
    assert quantized_groups(build_type_graph(read_flat(parse(text)))) == []
    opaque = text[: text.index("<domain")]
    assert len(quantized_groups(build_type_graph(read_flat(parse(opaque))))) == 1
