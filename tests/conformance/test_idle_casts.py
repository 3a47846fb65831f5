"""Casts to the type that is there already, which older exporters write by the hundred."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_text import assert_close, parse, rewritten

import amp_rewrite as amp

EYE = "float[4,4] w = {2,0,0,0,0,1,0,0,0,0,1,0,0,0,1,1}"
BODY = "a = MatMul(x, w) {0} d = Relu({1}) {2} y = MatMul({3}, w)"
X = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)


def _model(body: str) -> str:
    header = '<ir_version: 8, opset_import: ["" : 13]>'
    return f"{header} g (float[2,4] x) => (float[2,4] y) <{EYE}> {{ {body} }}"


IDLE = BODY.format("b = Cast<to = 1>(a) c = Cast<to = 1>(b)", "c", "e = Cast<to = 1>(d)", "e")
PLAIN = BODY.format("", "a", "", "d")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_what_lies_between_them_becomes_low_and_they_go(precision: str) -> None:
    result = rewritten(_model(IDLE), precision=precision)
    plain = rewritten(_model(PLAIN), precision=precision)
    assert [n.op_type for n in result.model.graph] == [n.op_type for n in plain.model.graph]
    assert result.report.summary.casts_removed == 3
    assert_close(result, _model(IDLE), {"x": X})


def test_one_that_makes_an_output_is_left_there_and_one_behind_float32_casts() -> None:
    body = "a = MatMul(x, w) b = Exp(a) c = Cast<to = 1>(b) d = MatMul(c, w) y = Cast<to = 1>(d)"
    result = rewritten(_model(body))
    assert [n.name for n in result.model.graph if n.op_type == "Cast"] == [
        "x-CastToFp16-0-AutoMixedPrecision",
        "a-CastToFp32-0-AutoMixedPrecision",
        "b-CastToFp16-0-AutoMixedPrecision",
        "Cast_4",
    ]
    assert_close(result, _model(body), {"x": X})


def test_one_between_float32_operators_is_written_as_it_was_read() -> None:
    body = "a = Exp(x) b = Cast<to = 1>(a) c = Exp(b) d = MatMul(c, w) y = Relu(d)"
    (node,) = [n for n in rewritten(_model(body)).model.graph if n.name == "Cast_1"]
    assert node.attributes.get_int("to") == 1


def test_a_weight_behind_one_is_converted_in_the_file() -> None:
    body = "v = Cast<to = 1>(w) a = MatMul(x, v) y = MatMul(a, w)"
    result = rewritten(_model(body))
    assert [n.op_type for n in result.model.graph] == ["Cast", "MatMul", "MatMul", "Cast"]
    assert result.report.summary.compute_converted == 1.0


def test_the_share_of_sums_over_a_length_that_only_the_weight_records_is_known_behind_one() -> None:
    body = "v = Cast<to = 1>(w) a = MatMul(x, v) y = MatMul(a, v)"
    result = rewritten(_model(body), target="webgpu")
    assert result.report.summary.compute_converted == 1.0


def test_a_cast_that_changes_the_type_stays_a_wall() -> None:
    body = "a = MatMul(x, w) b = Cast<to = 11>(a) c = Cast<to = 1>(b) d = Relu(c) y = Exp(d)"
    assert _low(rewritten(_model(body)), "Relu") is False
    assert _low(rewritten(_model(body.replace("to = 11", "to = 1"))), "Relu") is True


def _low(result: amp.RewriteResult, op: str) -> bool:
    (node,) = [node for node in result.report.nodes if node.op == op]
    return any(variable.dtype != "float32" for variable in node.variables.values())


def test_a_fused_group_is_known_with_them_inside() -> None:
    text = _model(
        "a = MatMul(x, w) m = ReduceMean<axes = [-1]>(a) c = Cast<to = 1>(a) s = Sub(c, m) "
        "t = Cast<to = 1>(s) q = Pow(t, two) v = ReduceMean<axes = [-1]>(q) e = Add(v, eps) "
        "r = Sqrt(e) n = Div(s, r) k = Mul(n, scale) o = Add(k, bias) y = MatMul(o, w)"
    ).replace(
        EYE,
        f"{EYE}, float two = {{2}}, float eps = {{0.00001}}, "
        "float[4] scale = {1,1,1,1}, float[4] bias = {0,0,0,0}",
    )
    groups = {node.group for node in amp.rewrite(parse(text)).report.nodes}
    assert any(group is not None and "LayerNormalization" in group for group in groups)
