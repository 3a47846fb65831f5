"""A Cast to float32 whose consumers are all low casts to the low type instead."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_a_cast_of_integers_that_only_low_operators_read_is_retargeted() -> None:
    assert_rewrites(
        """g (int8[4,4] x) => (float[4,4] y) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
        }""",
        """g (int8[4,4] x) => (float[4,4] y) {
            c = Cast<to = 10>(x)
            y_fp16 = MatMul(c, c)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_cast_that_a_float32_operator_reads_as_well_stays() -> None:
    assert_rewrites(
        """g (int8[4,4] x) => (float[4,4] y, float[4,4] z) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
            z = Exp(c)
        }""",
        """g (int8[4,4] x) => (float[4,4] y, float[4,4] z) {
            c = Cast<to = 1>(x)
            c_fp16 = Cast<to = 10>(c)
            y_fp16 = MatMul(c_fp16, c_fp16)
            y = Cast<to = 1>(y_fp16)
            z = Exp(c)
        }""",
    )


def test_a_cast_that_makes_an_output_stays() -> None:
    assert_rewrites(
        """g (double[4,4] x) => (float[4,4] c, float[4,4] y) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
        }""",
        """g (double[4,4] x) => (float[4,4] c, float[4,4] y) {
            c = Cast<to = 1>(x)
            c_fp16 = Cast<to = 10>(c)
            y_fp16 = MatMul(c_fp16, c_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )
