"""The allow list starts the painting, and nothing is painted without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pass_marks import context_of, marks_of, model_of, painting_of, vertices_of
from rewrite_text import assert_rewrites, lists_of

from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.painting import Color, Mark, Reason
from amp_rewrite.rewriting.paint.passes.seed_allow import SeedAllow


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


TEXT = (
    "g (float[4,4] x) => (float[N] y) { [a] a = MatMul(x, x) [b] b = Exp(a) [c] y = MatMul(b, b) }"
)


def seeded(denied: str = "", **fields: Any) -> dict[str, tuple[str, str | None]]:
    """Return what nodes make that become low, why, and what is said of it."""
    context = context_of(model_of(TEXT), **fields)
    found = marks_of(SeedAllow(), context, painting_of(context, "", denied))
    assert {mark.color for mark in found.values()} <= {Color.ALLOW}
    return {value: (str(mark.reason), mark.detail) for value, mark in found.items()}


def test_products_are_seeds_unless_they_are_denied_or_preserved() -> None:
    assert {value: why for value, (why, _) in seeded().items()} == dict.fromkeys("ay", "allow-list")
    assert set(seeded("a")) == {"y"}
    assert set(seeded(rules=NodeRules(preserve=frozenset({"c"})))) == {"a"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"level": "UNSAFE_FORCE_ALL"}, "level UNSAFE_FORCE_ALL"),
        ({"only_low": True}, "nothing may be float32"),
    ],
)
def test_where_all_is_forced_it_is_said_why(changes: dict[str, Any], why: str) -> None:
    found = seeded(lists=replace(lists_of("float16"), **changes))
    assert found["b"] == ("forced", why)
    assert found["a"][0] == found["y"][0] == "allow-list"


def test_what_joins_a_group_is_a_seed_if_it_may_be_touched() -> None:
    (vertex,) = vertices_of(context_of(model_of(TEXT)), "b")
    joined = {vertex: Mark(Color.ALLOW, Reason.FUSED, None, "part of a group")}
    assert seeded(joined=joined)["b"] == ("fused-group", "part of a group")
    preserved = NodeRules(preserve=frozenset({"b"}))
    assert set(seeded(joined=joined, rules=preserved)) == {"a", "y"}
