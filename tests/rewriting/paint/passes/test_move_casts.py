"""Casts move across clear operators where that lowers their number or what they read."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_two_casts_behind_a_split_become_one_in_front() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            a, b = Split<axis = 1, num_outputs = 2>(h)
            c = Exp(a)
            d = Exp(b)
            y = Concat<axis = 1>(c, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            a, b = Split<axis = 1, num_outputs = 2>(h_fp32)
            c = Exp(a)
            d = Exp(b)
            y = Concat<axis = 1>(c, d)
        }""",
    )


def test_the_cast_in_front_of_a_gather_moves_behind_it() -> None:
    assert_rewrites(
        """g (float[100,4] x, int64[4] i) => (float[4,4] y)
        <float[4,4] r> {
            r = Gather(x, i)
            y = MatMul(r, r)
        }""",
        """g (float[100,4] x, int64[4] i) => (float[4,4] y) {
            r = Gather(x, i)
            r_fp16 = Cast<to = 10>(r)
            y_fp16 = MatMul(r_fp16, r_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_cast_does_not_move_to_a_place_of_unknown_size() -> None:
    assert_rewrites(
        """g (float[100,4] x, int64[4] i) => (float[4,4] y) {
            r = Gather(x, i)
            y = MatMul(r, r)
        }""",
        """g (float[100,4] x, int64[4] i) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            r = Gather(x_fp16, i)
            y_fp16 = MatMul(r, r)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_no_float32_consumer_reads_a_value_rounded_for_a_cast() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y, float[4,4] z) {
            e = Exp(x)
            r = Relu(e)
            y = MatMul(r, r)
            t = Transpose<perm = [1, 0]>(r)
            z = Exp(t)
        }""",
        """g (float[4,4] x) => (float[4,4] y, float[4,4] z) {
            e = Exp(x)
            r = Relu(e)
            r_fp16 = Cast<to = 10>(r)
            y_fp16 = MatMul(r_fp16, r_fp16)
            y = Cast<to = 1>(y_fp16)
            t = Transpose<perm = [1, 0]>(r)
            z = Exp(t)
        }""",
    )
