"""The operators that handle one sequence share one color."""

from __future__ import annotations

import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.rewriting.paint.painting import Color
from amp_rewrite.rewriting.paint.passes.match_sequences import MatchSequences


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


TWO = """g (float[4] x, int64 k) => (float[N] y) { s = SequenceConstruct(x, x)
    i = Identity(s) a = SequenceAt(i, k) t = SequenceConstruct(a, x) b = SequenceAt(t, k)
    y = Exp(b) }"""


@pytest.mark.parametrize(
    ("low", "denied", "expected"),
    [
        ("", "", ""),
        ("s", "", "IA"),
        ("a", "", "SI"),
        ("sia", "", ""),
        ("t", "", "B"),
        ("st", "", "IAB"),
        ("", "s", "ia"),
        ("sa", "i", "sa"),
        ("sia", "b", "t"),
        ("s", "t", "IAb"),
        ("y", "", ""),
    ],
)
def test_each_sequence_has_the_color_of_its_members(low: str, denied: str, expected: str) -> None:
    """Capital letters become low, others are denied."""
    context = context_of(model_of(TWO))
    found = marks_of(MatchSequences(), context, painting_of(context, low, denied))
    colors = [v.upper() if m.color is Color.ALLOW else v for v, m in found.items()]
    assert {m.color for m in found.values()} <= {Color.ALLOW, Color.DENY}
    assert set(colors) == {*expected}
