"""The gradient of an operator that is float32 is float32 as well."""

from __future__ import annotations

from rewrite_text import assert_rewrites, step


def test_the_gradient_of_a_denied_operator_stays_float32() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            [f] s = Exp(h)
            a = MatMul(s, s)
            [g] d = Mul(a, a)
            y = MatMul(d, d)
        }""",
        {"g": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [f] s = Exp(h_fp32)
            s_fp16 = Cast<to = 10>(s)
            a = MatMul(s_fp16, s_fp16)
            a_fp32 = Cast<to = 1>(a)
            [g] d = Mul(a_fp32, a_fp32)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_gradient_of_what_a_constant_keeps_float32_does_so_too() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y)
        <float c = {1048576}> {
            h = MatMul(x, x)
            [f] s = Div(h, c)
            a = MatMul(s, s)
            [g] d = Mul(a, a)
            y = MatMul(d, d)
        }""",
        {"g": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y)
        <float c = {1048576}> {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [f] s = Div(h_fp32, c)
            s_fp16 = Cast<to = 10>(s)
            a = MatMul(s_fp16, s_fp16)
            a_fp32 = Cast<to = 1>(a)
            [g] d = Mul(a_fp32, a_fp32)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_gradient_of_a_low_operator_is_low() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            [f] s = Sigmoid(h)
            a = MatMul(s, s)
            [g] d = Mul(a, a)
            y = MatMul(d, d)
        }""",
        {"g": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            [f] s = Sigmoid(h)
            a = MatMul(s, s)
            [g] d = Mul(a, a)
            y_fp16 = MatMul(d, d)
            y = Cast<to = 1>(y_fp16)
        }""",
    )
