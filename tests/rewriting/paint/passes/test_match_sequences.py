"""The operators that handle one sequence share one color."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_a_painted_member_paints_the_others_listed_or_not() -> None:
    assert_rewrites(
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            h = MatMul(x, x)
            s = SequenceEmpty<dtype = 1>()
            t = SequenceInsert(s, h)
            a = SequenceAt(t, k)
            y = MatMul(a, a)
        }""",
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            s = SequenceEmpty<dtype = 10>()
            t = SequenceInsert(s, h)
            a = SequenceAt(t, k)
            y_fp16 = MatMul(a, a)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_denied_member_denies_the_others() -> None:
    assert_rewrites(
        """g (float[4,4] x, int64 k) => (float[4,4] y, float[4,4] z) {
            h = MatMul(x, x)
            e = Exp(x)
            s = SequenceConstruct(h, e)
            a = SequenceAt(s, k)
            z = Sigmoid(a)
            b = SequenceAt(s, k)
            y = MatMul(b, b)
        }""",
        """g (float[4,4] x, int64 k) => (float[4,4] y, float[4,4] z) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(x)
            s = SequenceConstruct(h_fp32, e)
            a = SequenceAt(s, k)
            z = Sigmoid(a)
            b = SequenceAt(s, k)
            b_fp16 = Cast<to = 10>(b)
            y_fp16 = MatMul(b_fp16, b_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )
