"""Quotients of products of the same activations stay float32."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"


def kept(body: str, **options: object) -> set[str]:
    """Return the nodes that an estimate keeps in float32."""
    text = f"""g (float[4,4] x) => (float[4,4] y) <{W}> {{
        q = MatMul(x, w) k = MatMul(x, w) v = MatMul(x, w) {body} y = MatMul(o, w) }}"""
    nodes = rewritten(text, **options).report.nodes
    return {n.name for n in nodes if "likely-overflow" in {v.reason for v in n.variables.values()}}


LINEAR = """[kv] kv = MatMul(k, v) [num] n = MatMul(q, kv) [den] d = MatMul(q, k)
            [div] o = Div(n, d)"""


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_the_quotient_and_its_products_are_kept() -> None:
    assert kept(LINEAR) == {"kv", "num", "den", "div"}
    assert "kv" not in kept(LINEAR, allow_nodes=["kv"])


BETWEEN = {
    "behind the products": ("n = MatMul(q, kv) [neg] m = Neg(n) [div] o = Div(m, d)", "neg"),
    "below": ("n = MatMul(q, kv) [sum] e = Add(d, d) [div] o = Div(n, e)", "sum"),
    "in front of one": ("r = Relu(q) n = MatMul(r, kv) [div] o = Div(n, d)", ""),
}


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("name", BETWEEN)
def test_what_lies_between_products_and_quotient_is_kept(name: str) -> None:
    body, between = BETWEEN[name]
    products = "[kv] kv = MatMul(k, v) [den] d = MatMul(q, k) "
    assert kept(products + body.replace("n = MatMul", "[num] n = MatMul")) == {
        *("kv", "num", "den", "div", *between.split())
    }


def test_bfloat16_has_the_range() -> None:
    assert not kept(LINEAR, precision="bfloat16")


@pytest.mark.filterwarnings("ignore:.*has a product of 3:amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize(
    "body",
    [
        "[kv] kv = MatMul(k, v) [div] o = Div(kv, k)",
        "[kv] kv = MatMul(k, v) [num] n = MatMul(q, kv) s = Softmax(x) [div] o = Div(n, s)",
    ],
)
def test_other_quotients_are_low(body: str) -> None:
    assert not kept(body)
