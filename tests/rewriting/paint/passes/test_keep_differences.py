"""What the pass says of differences, and whom it obeys."""

from __future__ import annotations

from typing import Any

import pytest
from rewrite_text import parse

import amp_rewrite as amp

SOURCE = """g (float[8,4] x) => (float[8,8] y, float[8,1] r)
    <int64[1] last = {-1}, float two = {2}> {
    [square] s = Mul(x, x) [sum] q = ReduceSum(s, last) t = Transpose(x) [product] p = MatMul(x, t)
    [double] m = Mul(p, two) [met] y = Sub(q, m) [left] d = Sub(two, q) [root] r = Sqrt(d) }"""


def marks(source: str = SOURCE, **options: Any) -> dict[str, tuple[str, str | None]]:
    """Return, by node with one type variable, its reason and what is said of it."""
    nodes = amp.rewrite(parse(source), target="schema", **options).report.nodes
    found = {n.name: next(iter(n.variables.values())) for n in nodes if len(n.variables) == 1}
    return {name: (v.reason, v.detail) for name, v in found.items()}


def test_the_product_and_the_root_are_named() -> None:
    found = marks()
    assert found["product"] == ("difference", "product meets the sum of the squares of x")
    assert found["met"] == found["product"]
    assert found["left"] == ("difference", "a difference in front of root")


def test_a_node_that_the_user_allows_is_not_kept() -> None:
    assert marks(allow_nodes=["product"])["product"][0] == "allow-list"


def test_force_all_keeps_nothing() -> None:
    assert "difference" not in {reason for reason, _ in marks(level="UNSAFE_FORCE_ALL").values()}


def test_whole_numbers_have_no_squares_that_count() -> None:
    source = parse(
        """g (float[8,4] x, int64[8,4] i) => (float[8,4] y, int64[8,1] q) <int64[1] last = {-1}> {
        s = Mul(i, i) q = ReduceSum(s, last) t = Transpose(x) p = MatMul(x, t) y = MatMul(p, x) }"""
    )
    assert amp.rewrite(source, target="schema").report.summary.nodes_converted == 3


UNIT = ", ".join("1" if k % 5 == 0 else "0" for k in range(16))
SQUARES = {
    "the diagonal of a product": (
        "t = Transpose(x) [made] g = MatMul(x, t) s = Mul(g, unit) q = ReduceSum(s, last)",
        True,
    ),
    "scaled": ("s = Mul(x, x) r = ReduceSum(s, last) [made] q = Mul(r, two)", True),
    "bent": ("s = Mul(x, x) r = ReduceSum(s, last) [made] q = Exp(r)", False),
    "a constant's": ("s = Mul(rows, rows) r = ReduceSum(s, last) [made] q = Transpose(r)", False),
}


@pytest.mark.parametrize("name", SQUARES)
def test_squares_are_known_in_other_spellings(name: str) -> None:
    squares, is_kept = SQUARES[name]
    found = marks(
        f"""g (float[4,4] x) => (float[4,4] y) <int64[1] last = {{-1}}, float two = {{2}},
        float[4,4] unit = {{{UNIT}}}, float[4,4] rows = {{{UNIT}}}> {{
        {squares} u = Transpose(x) [product] p = MatMul(x, u) y = Sub(q, p) }}"""
    )
    assert (found["product"][0] == "difference") is is_kept
    assert (found["made"][0] == "difference") is is_kept


@pytest.mark.parametrize(
    ("rows", "is_kept"), [("1, 4, 2, 5, 3, 6", True), ("1, 2, 3, 4, 5, 6", False)]
)
def test_a_constant_meets_its_own_squares_where_it_is_stored_twice(
    rows: str, is_kept: bool
) -> None:
    found = marks(
        f"""g (float[8,2] x) => (float[8,3] y) <int64[1] last = {{-1}},
        float[2,3] columns = {{1, 2, 3, 4, 5, 6}}, float[3,2] rows = {{{rows}}}> {{
        s = Mul(rows, rows) r = ReduceSum(s, last) q = Transpose(r)
        [product] p = MatMul(x, columns) y = Sub(q, p) }}"""
    )
    assert (found["product"][0] == "difference") is is_kept
