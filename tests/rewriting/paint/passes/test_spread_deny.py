"""What follows a dangerous operator stays float32 up to the next allow-list operator."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_what_follows_a_denied_operator_stays_float32_although_it_lies_between_allow_ones() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            s = Add(e, h_fp32)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_denial_passes_through_clear_and_infer_operators() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            r = Relu(e)
            q = Sqrt(r)
            d = Div(h, q)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            r = Relu(e)
            q = Sqrt(r)
            d = Div(h_fp32, q)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_clear_operator_behind_the_last_denied_infer_one_may_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            r = Relu(s)
            y = MatMul(r, r)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            s = Add(e, h_fp32)
            s_fp16 = Cast<to = 10>(s)
            r = Relu(s_fp16)
            y_fp16 = MatMul(r, r)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_sums_of_squares_of_pow_stay_float32_up_to_the_next_allow_operator() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y)
        <float two = {2}> {
            h = MatMul(x, x)
            s = Pow(h, two)
            r = ReduceMean(s)
            q = Sqrt(r)
            d = Div(h, q)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y)
        <float two = {2}> {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Pow(h_fp32, two)
            r = ReduceMean(s)
            q = Sqrt(r)
            d = Div(h_fp32, q)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_unsafe_force_all_denies_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            e = Exp(h)
            s = Add(e, h)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
        level="UNSAFE_FORCE_ALL",
    )


def test_the_square_that_a_denied_reduction_sums_stays_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, h)
            r = ReduceMean(s)
            d = Div(h, r)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Mul(h_fp32, h_fp32)
            r = ReduceMean(s)
            d = Div(h_fp32, r)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_square_is_followed_through_clear_operators() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, h)
            a = Abs(s)
            r = ReduceSum(a)
            d = Div(h, r)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Mul(h_fp32, h_fp32)
            a = Abs(s)
            r = ReduceSum(a)
            d = Div(h_fp32, r)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_product_of_two_values_before_a_reduction_is_not_a_square() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, x)
            r = ReduceMean(s)
            d = Div(h, r)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Mul(h, x_fp16)
            s_fp32 = Cast<to = 1>(s)
            r = ReduceMean(s_fp32)
            d = Div(h_fp32, r)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_square_that_nothing_sums_is_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            s = Mul(h, h)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_square_of_a_value_and_its_identity_is_a_square() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            same = Identity(h)
            s = Mul(h, same)
            r = ReduceMean(s)
            d = Div(h, r)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            same = Identity(h_fp32)
            s = Mul(h_fp32, same)
            r = ReduceMean(s)
            d = Div(h_fp32, r)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )
