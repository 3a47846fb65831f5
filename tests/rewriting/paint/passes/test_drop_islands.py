"""A painted region that lost its allow-list operator goes as well."""

from __future__ import annotations

import pytest
from pass_marks import context_of, made, model_of, vertices_of
from rewrite_text import assert_rewrites

from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.passes.drop_islands import ISOLATED, DropIslands


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


CHAIN = """g (float[4] x, int64 k) => (float[4] y) { a = Neg(x) b = Neg(a) c = Neg(b) d = Neg(c)
    s = SequenceConstruct(d, d) t = SequenceAt(s, k) n = SequenceLength(s) y = Exp(t) }"""


def left(low: str, seeds: str, reason: Reason = Reason.ALLOW_LIST) -> set[str]:
    """Return what nodes make that leave the painting, of those that are low."""
    context = context_of(model_of(CHAIN))
    before = Painting.blank(context.type_graph).with_marks(
        {
            vertex: Mark(Color.ALLOW, reason if node in seeds else Reason.GIVEN, 0)
            for node in low
            for vertex in vertices_of(context, node)
        }
    )
    after = DropIslands().run(context, before)
    changes = after.changes(before)
    assert {(m.color, m.reason, m.because) for m in changes.values()} <= {(Color.NONE, ISOLATED, 0)}
    return {made(context.type_graph, vertex) for vertex in changes}


@pytest.mark.parametrize(
    ("low", "seeds", "expected"),
    [
        ("abcd", "a", ""),
        ("abcd", "d", ""),
        ("abcd", "b", ""),
        ("abcd", "", "abcd"),
        ("abd", "a", "d"),
        ("abd", "d", "ab"),
        ("abd", "ad", ""),
        ("st", "s", ""),
        ("st", "t", ""),
        ("dst", "d", ""),
        ("st", "", "st"),
        ("bst", "b", "st"),
        ("sn", "s", ""),
        ("sn", "n", ""),
        ("tn", "t", "n"),
    ],
)
def test_a_region_stays_with_a_seed_anywhere_in_it(low: str, seeds: str, expected: str) -> None:
    assert left(low, seeds) == {*expected}
