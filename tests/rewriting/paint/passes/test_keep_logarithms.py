"""Logarithms of small numbers keep what computes their arguments in float32, as far as needed."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"


def kept(body: str, constants: str = "", **options: object) -> set[str]:
    """Return the nodes that a logarithm demands in float32."""
    text = (
        f"g (float[4,4] x) => (float[4,4] y) <{W}{constants}> {{ [first] h = MatMul(x, w) {body} }}"
    )
    nodes = rewritten(text, **options).report.nodes
    return {n.name for n in nodes if "demand" in {v.reason for v in n.variables.values()}}


LOG = "[clip] c = Clip(p, eps) [log] l = Log(c) y = MatMul(l, w)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[product] p = MatMul(h, w) " + LOG, {"product", "first"}),
        ("[square] s = Mul(h, h) [product] p = MatMul(s, w) " + LOG, {"square", "product"}),
        ("[root] p = Sqrt(h) " + LOG, {"root", "first"}),
        ("[function] p = Sigmoid(h) " + LOG, {"function"}),
    ],
)
def test_all_is_kept_back_to_what_the_type_holds(body: str, expected: set[str]) -> None:
    assert kept(body, ", float eps = {1e-10}") - {"clip", "log"} == expected


NORM = "[square] s = {} [sum] t = MatMul(s, w) [root] p = {} " + LOG


@pytest.mark.parametrize("square", ["Mul(h, h)", "Pow(h, two)"])
@pytest.mark.parametrize("root", ["Sqrt(t)", "Pow(t, half)"])
def test_a_root_of_squares_counts_numbers_of_the_same_size(square: str, root: str) -> None:
    # 1e-6 is too small for float16; the 1e-3 that one square or one root makes of it is not.
    constants = ", float eps = {1e-6}, float two = {2}, float half = {0.5}"
    found = kept(NORM.format(square, root), constants)
    assert found >= {"sum", "first"}


def test_guards_that_the_type_holds_demand_nothing() -> None:
    assert not kept("[product] p = MatMul(h, w) " + LOG, ", float eps = {1e-4}")
    assert not kept(
        "[product] p = MatMul(h, w) " + LOG, ", float eps = {1e-10}", precision="bfloat16"
    )


def test_a_node_that_the_user_allows_stays_low() -> None:
    body, eps = "[product] p = MatMul(h, w) " + LOG, ", float eps = {1e-10}"
    assert "product" not in kept(body, eps, allow_nodes=["product"])


@pytest.mark.parametrize(("weight", "reason"), [("0.9", "likely-overflow"), ("0.4", "allow-list")])
def test_a_transform_that_loud_sound_takes_out_of_range_is_kept(weight: str, reason: str) -> None:
    numbers = ", ".join([weight] * 16)
    nodes = rewritten(
        f"""g (float[4,4] x) => (float[4,4] y)
        <float[4,4] w = {{{numbers}}}, float eps = {{1e-3}}> {{
        [transform] h = MatMul(x, w) s = Mul(h, h) c = Max(s, eps) l = Log(c) y = MatMul(l, w) }}"""
    ).report.nodes
    assert {n.variables["T"].reason for n in nodes if n.name == "transform"} == {reason}
