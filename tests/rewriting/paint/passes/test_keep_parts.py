"""What of a training step stays float32 by construction, whatever the lists say."""

from __future__ import annotations

from rewrite_text import assert_rewrites, step


def test_the_update_stays_float32_although_it_lies_between_allow_operators() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            [u] u = Add(h, h)
            y = MatMul(u, u)
        }""",
        {"u": "update"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [u] u = Add(h_fp32, h_fp32)
            u_fp16 = Cast<to = 10>(u)
            y_fp16 = MatMul(u_fp16, u_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_loss_and_its_gradient_stay_float32() -> None:
    before = step(
        """g (float[4,4] x, float[4,4] d) => (float[4,4] y, float[4,4] l) {
            [f] h = MatMul(x, x)
            [s] l = Sigmoid(h)
            [g] k = Mul(l, d)
            [m] y = MatMul(k, k)
        }""",
        {"g": "gradient of s", "m": "gradient of f"},
        loss="l",
    )
    assert_rewrites(
        before,
        """g (float[4,4] x, float[4,4] d) => (float[4,4] y, float[4,4] l) {
            x_fp16 = Cast<to = 10>(x)
            [f] h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [s] l = Sigmoid(h_fp32)
            [g] k = Mul(l, d)
            k_fp16 = Cast<to = 10>(k)
            [m] y_fp16 = MatMul(k_fp16, k_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_what_a_gradient_sums_over_axes_stays_float32_with_what_reads_the_sum() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            [f] p = Softmax(h)
            d = MatMul(p, p)
            [a] t = Mul(d, p)
            [b] s = ReduceSum(t)
            [c] u = Sub(d, s)
            [m] y = MatMul(u, t)
        }""",
        {"a": "gradient of f", "b": "gradient of f", "c": "gradient of f", "m": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            [f] p = Softmax(h)
            p_fp32 = Cast<to = 1>(p)
            d = MatMul(p, p)
            d_fp32 = Cast<to = 1>(d)
            [a] t = Mul(d_fp32, p_fp32)
            t_fp16 = Cast<to = 10>(t)
            [b] s = ReduceSum(t)
            [c] u = Sub(d_fp32, s)
            u_fp16 = Cast<to = 10>(u)
            [m] y_fp16 = MatMul(u_fp16, t_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_what_divides_by_a_number_of_elements_stays_float32() -> None:
    before = step(
        """g (float[4,4] x, int64[1] n) => (float[4,4] y) {
            h = MatMul(x, x)
            [f] p = Sigmoid(h)
            [c] k = Cast<to = 1>(n)
            [d] q = Div(p, k)
            [e] y = MatMul(q, q)
        }""",
        {"c": "gradient of f", "d": "gradient of f", "e": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x, int64[1] n) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            [f] p = Sigmoid(h)
            p_fp32 = Cast<to = 1>(p)
            [c] k = Cast<to = 1>(n)
            [d] q = Div(p_fp32, k)
            q_fp16 = Cast<to = 10>(q)
            [e] y_fp16 = MatMul(q_fp16, q_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_sum_of_the_gradients_of_a_variable_stays_float32() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            [f] h = MatMul(x, x)
            [a] a = MatMul(h, h)
            [b] b = MatMul(h, x)
            [c] s = Add(a, b)
            [u] y = Sub(x, s)
        }""",
        {"a": "gradient of f", "b": "gradient of f", "c": "gradient of f", "u": "update"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            [f] h = MatMul(x_fp16, x_fp16)
            [a] a = MatMul(h, h)
            a_fp32 = Cast<to = 1>(a)
            [b] b = MatMul(h, x_fp16)
            b_fp32 = Cast<to = 1>(b)
            [c] s = Add(a_fp32, b_fp32)
            [u] y = Sub(x, s)
        }""",
        level="UNSAFE_FORCE_ALL",
    )


def test_sequences_of_gradients_stay_float32() -> None:
    before = step(
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            [f] h = MatMul(x, x)
            [a] s = SequenceConstruct(h, h)
            [b] a = SequenceAt(s, k)
            y = MatMul(a, a)
        }""",
        {"a": "gradient of f", "b": "gradient of f"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            [f] h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [a] s = SequenceConstruct(h_fp32, h_fp32)
            [b] a = SequenceAt(s, k)
            a_fp16 = Cast<to = 10>(a)
            y_fp16 = MatMul(a_fp16, a_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )
