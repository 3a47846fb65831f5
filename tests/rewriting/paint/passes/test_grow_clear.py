"""Operators without numerical effect join the allow-list operators next to them."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_clear_operators_on_either_side_of_an_allow_one_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            r = Relu(x)
            h = MatMul(r, r)
            a = Relu(h)
            y = Exp(a)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            r = Relu(x_fp16)
            h = MatMul(r, r)
            a = Relu(h)
            a_fp32 = Cast<to = 1>(a)
            y = Exp(a_fp32)
        }""",
    )


def test_clear_operators_grow_through_clear_ones_and_stop_at_others() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            a = Relu(s)
            b = Neg(a)
            y = MatMul(b, b)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            s_fp16 = Cast<to = 10>(s)
            a = Relu(s_fp16)
            b = Neg(a)
            y_fp16 = MatMul(b, b)
            y = Cast<to = 1>(y_fp16)
        }""",
        infer_after_allow=False,
    )
