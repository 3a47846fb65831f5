"""A painted region that lost its allow-list operator goes as well."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_what_followed_an_operator_that_was_dropped_stays_float32() -> None:
    unchanged = """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
        c = Conv(x, k)
        s = Sigmoid(c)
        y = Exp(s)
    }"""
    assert_rewrites(unchanged, unchanged, precision="bfloat16")


def test_what_another_allow_operator_reaches_stays_low() -> None:
    assert_rewrites(
        """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = Conv(x, k)
            s = Sigmoid(c)
            m = MatMul(s, s)
            y = Exp(m)
        }""",
        """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = Conv(x, k)
            c_bf16 = Cast<to = 16>(c)
            s = Sigmoid(c_bf16)
            m = MatMul(s, s)
            m_fp32 = Cast<to = 1>(m)
            y = Exp(m_fp32)
        }""",
        precision="bfloat16",
    )
