"""Sequences that the painting cannot follow are left alone, members and all."""

from __future__ import annotations

from rewrite_text import assert_rewrites


def test_a_sequence_that_leaves_the_graph_stays_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (seq(float[4,4]) y) {
            h = MatMul(x, x)
            y = SequenceConstruct(h, h)
        }""",
        """g (float[4,4] x) => (seq(float[4,4]) y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            y = SequenceConstruct(h_fp32, h_fp32)
        }""",
    )


def test_a_sequence_that_passes_through_an_optional_stays_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            h = MatMul(x, x)
            s = SequenceConstruct(h, h)
            o = Optional(s)
            t = OptionalGetElement(o)
            a = SequenceAt(t, k)
            y = MatMul(a, a)
        }""",
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = SequenceConstruct(h_fp32, h_fp32)
            o = Optional(s)
            t = OptionalGetElement(o)
            a = SequenceAt(t, k)
            a_fp16 = Cast<to = 10>(a)
            y_fp16 = MatMul(a_fp16, a_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_member_that_must_stay_float32_keeps_the_whole_sequence_so() -> None:
    assert_rewrites(
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            h = MatMul(x, x)
            [s] s = SequenceConstruct(h, x)
            a = SequenceAt(s, k)
            y = MatMul(a, a)
        }""",
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [s] s = SequenceConstruct(h_fp32, x)
            a = SequenceAt(s, k)
            a_fp16 = Cast<to = 10>(a)
            y_fp16 = MatMul(a_fp16, a_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        deny_nodes=["s"],
    )


def test_a_sequence_whose_operators_do_not_admit_the_type_stays_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            h = MatMul(x, x)
            s = SequenceConstruct(h, x)
            a = SequenceAt(s, k)
            y = MatMul(a, a)
        }""",
        """g (float[4,4] x, int64 k) => (float[4,4] y) {
            x_bf16 = Cast<to = 16>(x)
            h = MatMul(x_bf16, x_bf16)
            h_fp32 = Cast<to = 1>(h)
            s = SequenceConstruct(h_fp32, x)
            a = SequenceAt(s, k)
            a_bf16 = Cast<to = 16>(a)
            y_bf16 = MatMul(a_bf16, a_bf16)
            y = Cast<to = 1>(y_bf16)
        }""",
        precision="bfloat16",
    )


def test_a_sequence_that_only_passes_through_is_left_alone_even_by_force() -> None:
    unchanged = """g (seq(float[2]) x) => (seq(float[2]) y) {
        y = Identity(x)
    }"""
    assert_rewrites(unchanged, unchanged, level="UNSAFE_FORCE_ALL")
