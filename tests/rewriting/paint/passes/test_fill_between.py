"""What lies between two allow-list operators joins them."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_clear_and_infer_operators_between_allow_ones_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            r = Relu(h)
            s = Sigmoid(r)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            r = Relu(h)
            s = Sigmoid(r)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_path_with_an_operator_on_no_list_connects_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            c = Cos(h)
            s = Sigmoid(c)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            c = Cos(h_fp32)
            s = Sigmoid(c)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_an_operator_before_the_first_allow_one_lies_between_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            h = MatMul(s, s)
            y = Exp(h)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            s_fp16 = Cast<to = 10>(s)
            h = MatMul(s_fp16, s_fp16)
            h_fp32 = Cast<to = 1>(h)
            y = Exp(h_fp32)
        }""",
    )


def test_a_path_with_an_operator_without_a_kernel_connects_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            m = Mish(h)
            s = Sigmoid(m)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            m = Mish(h_fp32)
            s = Sigmoid(m)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        target="cuda",
    )
