"""Sums of scores and masks stay float32 with what makes the masks, and the Softmax."""

from __future__ import annotations

from rewrite_text import rewritten

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"


def kept(body: str, constants: str, **options: object) -> set[str]:
    """Return the nodes that a mask keeps in float32."""
    text = f"""g (float[4,4] x, bool[4,4] keep) => (float[4,4] y) <{W}, {constants}> {{
        h = MatMul(x, w) {body} [soft] p = Softmax(s) y = MatMul(p, w) }}"""
    nodes = rewritten(text, **options).report.nodes
    return {n.name for n in nodes if "mask" in {v.reason for v in n.variables.values()}}


FILL = "float zero = {0}, float fill = {-1e4}, float two = {2}"
ADDED = "[mask] m = Where(keep, zero, fill) [add] s = Add(h, m)"


def test_the_sum_and_the_softmax_are_kept() -> None:
    assert {"add", "soft"} <= kept(ADDED, FILL)
    assert {"add", "div", "soft"} <= kept(
        ADDED.replace("s =", "a =") + " [div] s = Div(a, two)", FILL
    )


def test_a_mask_that_trilu_makes_leaves_an_element_in_every_row() -> None:
    constants = "int64[2] size = {4, 4}, int64 one = {1}, int64 zero = {0}"
    body = """c = ConstantOfShape<value = float[1] {-10000}>(size) [cut] m = Trilu(c, DIAGONAL)
              [add] s = Add(h, m)"""
    assert not kept(body.replace("DIAGONAL", "one"), constants)
    assert "add" in kept(body.replace("DIAGONAL", "zero"), constants)


def test_nodes_that_the_user_allows_stay_low() -> None:
    assert "add" not in kept(ADDED, FILL, allow_nodes=["add"])
