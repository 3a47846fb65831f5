"""What the pass says of phases, and whom it obeys."""

from __future__ import annotations

from typing import Any

from rewrite_text import parse

import amp_rewrite as amp

SOURCE = """g (float[8,8] x) => (float[8,8] y) <float[8,8] c = {ROW}, float[8,8] s = {ROW}> {
    [real] re = MatMul(x, c) [imaginary] im = MatMul(x, s) [quotient] q = Div(im, re)
    [angle] a = Atan(q) y = MatMul(a, c) }""".replace("ROW", ", ".join(["0.5"] * 64))


def marks(**options: Any) -> dict[str, tuple[str, str | None]]:
    """Return, by node with one type variable, its reason and what is said of it."""
    nodes = amp.rewrite(parse(SOURCE), target="schema", **options).report.nodes
    found = {n.name: next(iter(n.variables.values())) for n in nodes if len(n.variables) == 1}
    return {name: (v.reason, v.detail) for name, v in found.items()}


def test_the_angle_is_named() -> None:
    found = marks()
    assert found["quotient"] == ("demand", "phase of angle")
    assert found["real"] == found["imaginary"] == found["quotient"]


def test_a_node_that_the_user_allows_is_not_kept() -> None:
    assert marks(allow_nodes=["real"])["real"][0] == "allow-list"


def test_force_all_keeps_nothing() -> None:
    assert "demand" not in {reason for reason, _ in marks(level="UNSAFE_FORCE_ALL").values()}
