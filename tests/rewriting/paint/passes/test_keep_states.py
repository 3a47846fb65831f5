"""What the pass says of states, and whom it obeys."""

from __future__ import annotations

from typing import Any

from rewrite_text import parse

import amp_rewrite as amp

SOURCE = """g (float[T,4] u, float[4] first) => (float[4] last, float[T,4] y)
    <float[4,4] a = {0.9, 0, 0, 0, 0, 0.9, 0, 0, 0, 0, 0.9, 0, 0, 0, 0, 0.9}> {
    last, y = Scan<num_scan_inputs = 1, body = turn (float[4] x, float[4] e)
    => (float[4] n, float[4] z) {
        [next] p = MatMul(a, x) [sum] n = Add(p, e) [read] z = MatMul(a, n) }>(first, u) }"""


def marks(source: str = SOURCE, **options: Any) -> dict[str, tuple[str, str | None]]:
    """Return, by node with one type variable, its reason and what is said of it."""
    nodes = amp.rewrite(parse(source), target="schema", **options).report.nodes
    found = {n.name: next(iter(n.variables.values())) for n in nodes if len(n.variables) == 1}
    return {name: (v.reason, v.detail) for name, v in found.items()}


def test_the_loop_is_named() -> None:
    found = marks()
    reason, detail = found["next"]
    assert reason == "carried-state"
    assert "Scan" in str(detail)
    assert found["sum"] == found["next"]
    assert found["read"][0] == "allow-list"


def test_a_node_that_the_user_allows_is_not_kept() -> None:
    assert marks(allow_nodes=["next"])["next"][0] == "allow-list"


def test_force_all_keeps_nothing() -> None:
    assert "carried-state" not in {reason for reason, _ in marks(level="UNSAFE_FORCE_ALL").values()}


def test_a_state_that_is_gated_may_be_rounded() -> None:
    gated = SOURCE.replace(
        "[next] p = MatMul(a, x)", "h = MatMul(a, e) g = Sigmoid(h) [next] p = Mul(g, x)"
    )
    assert marks(gated)["next"][0] != "carried-state"
    assert marks(gated.replace("Sigmoid", "Softplus"))["next"][0] == "carried-state"
