"""Sequences that the painting cannot follow are left alone, members and all."""

from __future__ import annotations

from typing import Any

from pass_marks import context_of, marks_of, model_of
from rewrite_text import assert_rewrites

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.passes.deny_sequences import DenySequences


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


MADE = "[s] s = SequenceConstruct(x, x) [a] a = SequenceAt(s, k) y = Exp(a)"


def denied(body: str, inputs: str = "float[4] x, int64 k", **fields: Any) -> dict[str, str]:
    """Return what nodes make that are denied, and why."""
    context = context_of(model_of(f"g ({inputs}) => (float[N] y) {{ {body} }}"), **fields)
    found = marks_of(DenySequences(), context)
    return {value: str(mark.detail) for value, mark in found.items()}


def test_a_sequence_that_is_made_and_read_inside_is_not_denied() -> None:
    assert denied(MADE) == {}
    assert denied(MADE.replace("SequenceAt(s, k)", "ConcatFromSequence<axis = 0>(s)")) == {}
    branch = MADE.replace("[a]", "i = Identity(s) [a]").replace("At(s", "At(i")
    assert denied(branch) == {}


def test_what_is_said_of_a_sequence_that_is_denied() -> None:
    assert denied(MADE, low=BFLOAT16) == dict.fromkeys(
        "sa", "SequenceConstruct s does not admit bfloat16"
    )
    preserved = NodeRules(preserve=frozenset({"a"}))
    why = "its member a stays float32: node a is in preserve"
    assert denied(MADE, rules=preserved) == dict.fromkeys("sa", why)
    optional = MADE.replace("[a]", "o = Optional(s) [o] e = OptionalGetElement(o) [a]")
    found = denied(optional.replace("At(s", "At(e"))
    assert found.keys() >= {"s", "a"}
    given = "[a] a = SequenceAt(q, k) y = Exp(a)"
    left = "its sequence q enters or leaves where the pass cannot follow it"
    assert denied(given, "seq(float[4]) q, int64 k") == {"a": left}


def test_one_sequence_is_denied_and_another_is_not() -> None:
    both = f"{MADE} [c] c = SequenceAt(q, k) z = Exp(c)"
    assert set(denied(both, "float[4] x, int64 k, seq(float[4]) q")) == {"c"}
