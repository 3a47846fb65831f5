"""Made-up inputs on which the original is no number are made up anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from amp_rewrite.numerics.compare.made_up_inputs import make_inputs
from amp_rewrite.numerics.compare.verify import verify

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'

BAND = """g (float[N,64] x, float{shape} {low}, float{shape} {high}) => (float[N] y)
  <float[5] f = {{50, 100, 200, 400, 1600}}, int64[1] one = {{1}}, int64[2] to = {{-1,5}}> {{
    s = ReduceMean<axes=[1], keepdims=1>(x) z = Mul(s, f) {compare}
    e = Sigmoid(z) k = Cast<to=1>(ok) ek = Mul(e, k) d = ReduceSum<keepdims=1>(ek, one)
    p = Div(ek, d) y = ReduceSum<keepdims=0>(p, one) }}"""

LIMITS = {
    "greater and less": "a = GreaterOrEqual(f, {low}) b = LessOrEqual(f, {high}) ok = And(a, b)",
    "from the other side": "a = Less({low}, f) b = Greater({high}, f) ok = And(a, b)",
    "behind a cast": "l = Cast<to=1>({low}) a = Greater(f, l) b = Less(f, {high}) ok = And(a, b)",
}


@pytest.mark.parametrize("shape", ["", "[1]"])
@pytest.mark.parametrize("compare", LIMITS)
def test_limits_lie_apart(compare: str, shape: str) -> None:
    text = LIMITS[compare].format(low="p_a", high="p_b")
    model = onnx.parser.parse_model(
        HEADER + BAND.format(shape=shape, low="p_a", high="p_b", compare=text)
    )
    (feeds,) = make_inputs(model).batches
    assert float(feeds["p_a"].max()) < 50 < 1600 < float(feeds["p_b"].min())
    report = verify(model, model, stress=False)
    assert report.left_out == ()


def test_a_known_range_stays() -> None:
    text = LIMITS["greater and less"].format(low="a_", high="b_")
    model = onnx.parser.parse_model(
        HEADER + BAND.format(shape="", low="a_", high="b_", compare=text)
    )
    (feeds,) = make_inputs(model, ranges={"a_": (99.0, 99.0)}).batches
    assert feeds["a_"] == 99


COUNTED = {
    "int64": "n = Cast<to=1>(num)",
    "int32": "n = Cast<to=1>(num)",
}


@pytest.mark.parametrize("type_", COUNTED)
def test_counts_are_not_zero(type_: str) -> None:
    model = onnx.parser.parse_model(
        f"""{HEADER} g (float[V,20,4] x, {type_}[V] num) => (float[V,4] y)
        <int64[1] one = {{1}}> {{
          {COUNTED[type_]} c = Unsqueeze(n, one)
          s = ReduceSum<keepdims=0>(x, one) y = Div(s, c) }}"""
    )
    (feeds,) = make_inputs(model, seed=3).batches
    assert feeds["num"].min() >= 1
    assert feeds["num"].dtype == np.dtype(type_)
    assert verify(model, model, stress=False).left_out == ()


def test_inputs_that_fit_are_left_alone() -> None:
    text = "g (float[N,4] x, int64[N] k) => (float[N,4] y) { y = Exp(x) }"
    model: Any = onnx.parser.parse_model(f"{HEADER} {text}")
    (feeds,) = make_inputs(model).batches
    assert feeds["x"].min() < 0
