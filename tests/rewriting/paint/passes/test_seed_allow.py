"""The allow list starts the painting, and nothing is painted without it."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_an_operator_of_the_allow_list_becomes_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            y = MatMul(x, x)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            y_fp16 = MatMul(x_fp16, x_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_without_an_operator_of_the_allow_list_nothing_becomes_low() -> None:
    unchanged = """g (float[4,4] x) => (float[4,4] y) {
        r = Relu(x)
        y = Sigmoid(r)
    }"""
    assert_rewrites(unchanged, unchanged)


def test_unsafe_force_all_forces_what_is_neither_random_nor_a_cast() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            e = Exp(x)
            n = RandomNormalLike(e)
            y = Add(e, n)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            e = Exp(x_fp16)
            e_fp32 = Cast<to = 1>(e)
            n = RandomNormalLike(e_fp32)
            n_fp16 = Cast<to = 10>(n)
            y_fp16 = Add(e, n_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        level="UNSAFE_FORCE_ALL",
    )
