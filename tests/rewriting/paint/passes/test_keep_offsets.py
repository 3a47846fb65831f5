"""Numbers far larger than what they are added to stay float32 in front of an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_offsets import keep_offsets

W = np.random.default_rng(0).normal(size=(8, 8)) / 8**0.5
NUMBERS = {
    "w": W,
    "k": W.reshape(8, 8, 1, 1),
    "year": np.full(8, 2024.0),
    "bias": np.full(8, 5.0),
    "planes": np.full((1, 8, 1, 1), 2024.0),
    "one": 2024.0,
    "half": 0.5,
    "small": 0.01,
    "top": np.array([1]),
    "years": np.arange(2020.0, 2028),
    "ages": np.arange(8.0),
    "rows": np.array([1]),
}
ROWS = "g (float[B,8] x, float[B,8] z) => (float[A,C] y)"
PLANES = "g (float[B,8,H,W] x) => (float[B,8,I,J] y)"


def kept(text: str, dtype: DType = FLOAT16, opset: int = 17, **constants: Any) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = model_of(f"{head} {text}", **NUMBERS, **constants)
    return set(marks_of(keep_offsets, context_of(model, dtype)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROWS} {{ y = Gemm(x, w, year) }}", {"y"}),
        (f"{ROWS} {{ y = Gemm<transB=1>(x, w, one) }}", {"y"}),
        (f"{PLANES} {{ y = Conv(x, k, year) }}", {"y"}),
        (f"{PLANES} {{ h = ConvTranspose(x, k, year) y = Relu(h) }}", {"h", "y"}),
        (f"{PLANES} {{ h = Conv(x, k) y = Add(h, planes) }}", {"y"}),
        (f"{ROWS} {{ h = MatMul(x, w) s = Mul(h, half) y = Add(year, s) }}", {"y"}),
        (f"{ROWS} {{ h = MatMul(x, w) s = Mul(h, small) y = Sub(s, bias) }}", {"y"}),
        (f"{ROWS} {{ h = Gemm(x, w, year) i = MatMul(z, w) y = Add(h, i) }}", {"h", "y"}),
    ],
)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("opset", [11, 17])
def test_a_large_offset_is_float32(text: str, expected: set[str], dtype: DType, opset: int) -> None:
    assert kept(text, dtype, opset) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h = Gemm(x, w, year) r = Relu(h) y = ReduceMax<keepdims=0>(r)", {"h", "r", "y"}),
        ("h = MatMul(x, w) a = Add(h, year) y = ReduceMean<keepdims=0>(a)", {"a", "y"}),
        ("h = Gemm(x, w, year) y, i = TopK<axis=1>(h, top)", {"h", "y"}),
        ("h = Gemm(x, w, year) y = Sinh(h)", {"h", "y"}),
    ],
)
def test_it_is_met_in_front_of_a_mean_or_an_end(text: str, expected: set[str]) -> None:
    assert kept(f"{ROWS} {{ f = Relu(x) {text.replace('(x, w', '(f, w')} }}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c = Unsqueeze(years, rows) y = MatMul(p, c)", {"p", "y"}),
        ("a = Mul(p, years) y = ReduceSum(a, rows)", {"p", "a", "y"}),
        ("g = Gemm(r, w, year) a = Mul(p, g) y = ReduceSum(a, rows)", {"p", "g", "a", "y"}),
        ("a = Mul(p, ages) y = ReduceSum(a, rows)", set()),
    ],
)
def test_shares_of_far_numbers_are_float32(text: str, expected: set[str]) -> None:
    assert kept(f"{ROWS} {{ r = Relu(x) h = MatMul(r, w) p = Softmax(h) {text} }}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROWS} {{ h = Gemm(x, w, year) r = Relu(h) y = MatMul(r, w) }}", {"h"}),
        (f"{ROWS} {{ h = MatMul(x, w) a = Sub(h, year) r = Relu(a) y = Gemm(r, w) }}", {"h", "a"}),
        (f"{ROWS} {{ i = Identity(x) h = Gemm<transB=1>(i, w, year) y = Elu(h) }}", {"i", "h"}),
    ],
)
def test_a_scale_that_is_folded_into_the_first_layer_is_met(text: str, expected: set[str]) -> None:
    assert kept(text) == expected


@pytest.mark.parametrize(
    "body",
    [
        "last, y = Loop(n, , x) <body = b (int64 i, bool c, float[B,8] s) => (bool d, float[B,8] t"
        ", float[B,8] o) {{ d = Identity(c) {step} o = Add(h, year) }}>",
        "last, y = Scan<num_scan_inputs = 1, body = b (float[B,8] s, float[8] e) => (float[B,8] t"
        ", float[B,8] o) {{ {step} o = Add(h, year) }}>(x, x)",
    ],
)
def test_it_is_met_in_a_loop_whose_state_is_not(body: str) -> None:
    text = body.format(step="r = MatMul(s, w) t = Tanh(r) h = MatMul(t, w)")
    signature = "g (float[B,8] x, int64 n) => (float[A,C,D] y)"
    assert kept(f"{signature} {{ {text} }}") == {"o", "last"}  # the loop, by its first result


def test_it_is_met_in_a_branch() -> None:
    text = (
        "g (bool b, float[B,8] x) => (float[A,C] y) { y = If(b) <"
        "then_branch = t () => (float[A,C] o) { h = MatMul(x, w) o = Add(h, year) }, "
        "else_branch = e () => (float[A,C] p) { p = MatMul(x, w) }> }"
    )
    assert "o" in kept(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{ROWS} {{ y = Gemm(x, w, bias) }}",  # an ordinary bias
        # not in front of an output, nor behind an input
        f"{ROWS} {{ r = Relu(x) h = Gemm(r, w, year) y = MatMul(h, w) }}",
        f"{ROWS} {{ r = Relu(x) h = Gemm(r, w, year) y = Softmax(h) }}",
        f"{PLANES} {{ h = Conv(x, k, year) r = Relu(h) y = Conv(r, k) }}",
        f"{ROWS} {{ h = MatMul(x, w) s = Mul(h, year) y = Add(s, year) }}",  # as large as it
        f"{ROWS} {{ y = Add(x, year) }}",  # nothing is known of the numbers
    ],
)
def test_others_are_left_alone(text: str) -> None:
    assert not kept(text)
