"""An infer operator right behind an allow-list one joins it, if it is asked for."""

from __future__ import annotations

from rewrite_text import assert_rewrites, step


def test_infer_operators_follow_an_allow_one_in_a_row() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Sigmoid(h)
            t = Tanh(s)
            y = Exp(t)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            s = Sigmoid(h)
            t = Tanh(s)
            t_fp32 = Cast<to = 1>(t)
            y = Exp(t_fp32)
        }""",
    )


def test_nothing_follows_if_that_is_switched_off() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Sigmoid(h)
            t = Tanh(s)
            y = Exp(t)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Sigmoid(h_fp32)
            t = Tanh(s)
            y = Exp(t)
        }""",
        infer_after_allow=False,
    )


def test_an_infer_operator_behind_a_clear_one_does_not_follow() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            r = Relu(h)
            s = Sigmoid(r)
            y = Exp(s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            r = Relu(h)
            r_fp32 = Cast<to = 1>(r)
            s = Sigmoid(r_fp32)
            y = Exp(s)
        }""",
    )


def test_a_softmax_on_openvino_is_low_between_products_only() -> None:
    """At the end of a model its rounded result would be off by up to 2e-3 of it, for nothing."""
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Softmax(h)
            t = MatMul(s, x)
            y = Softmax(t)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_bf16 = Cast<to = 16>(x)
            h = MatMul(x_bf16, x_bf16)
            s = Softmax(h)
            t = MatMul(s, x_bf16)
            t_fp32 = Cast<to = 1>(t)
            y = Softmax(t_fp32)
        }""",
        precision="bfloat16",
        target="openvino",
        lists=None,
    )


def test_an_operator_of_a_gradient_does_not_follow() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            [f] h = MatMul(x, x)
            [d] s = Sigmoid(h)
            y = Exp(s)
        }""",
        {"d": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            [f] h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [d] s = Sigmoid(h_fp32)
            y = Exp(s)
        }""",
    )


def test_an_operator_follows_through_an_identity() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            same = Identity(h)
            s = Sigmoid(same)
            y = Exp(s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            same = Identity(h)
            s = Sigmoid(same)
            s_fp32 = Cast<to = 1>(s)
            y = Exp(s_fp32)
        }""",
    )


def test_an_operator_follows_the_branches_of_an_if() -> None:
    assert_rewrites(
        """g (float[4,4] x, bool c) => (float[4,4] y) {
            h = If(c) <
                then_branch = a () => (float[4,4] t) { t = MatMul(x, x) },
                else_branch = b () => (float[4,4] e) { e = MatMul(x, x) }>
            s = Sigmoid(h)
            y = Exp(s)
        }""",
        """g (float[4,4] x, bool c) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = If(c) <
                then_branch = a () => (float16[4,4] t) { t = MatMul(x_fp16, x_fp16) },
                else_branch = b () => (float16[4,4] e) { e = MatMul(x_fp16, x_fp16) }>
            s = Sigmoid(h)
            s_fp32 = Cast<to = 1>(s)
            y = Exp(s_fp32)
        }""",
    )
