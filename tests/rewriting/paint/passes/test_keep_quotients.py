"""Quotients of products of the same activations stay float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.rewriting.paint.passes.keep_quotients import KeepQuotients

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


GRAPH = "g (float[4,4] a, float[4,4] b, float[4,4] c) => (float[N] y)"


def details(body: str, **options: Any) -> dict[str, str]:
    """Return what nodes make that the pass keeps, all being low, and why; q, k, v are layers'."""
    layers = "q = MatMul(a, u) k = MatMul(b, u) v = MatMul(c, u)"
    model = model_of(f"{GRAPH} {{ {layers} {body} }}", u=np.eye(4), one=1.0)
    context = context_of(model, **options)
    found = marks_of(KeepQuotients(), context, painting_of(context))
    return {value: str(mark.detail) for value, mark in found.items()}


FRACTIONS = {
    "two products over one": (
        "m = MatMul(k, v) n = MatMul(q, m) d = MatMul(q, k) y = Div(n, d)",
        "mndy",
    ),
    "two products over what they are made of": (
        "m = MatMul(k, v) n = MatMul(q, m) y = Div(n, q)",
        "mnqy",
    ),
    "over a sum of it": (
        "m = MatMul(k, v) n = MatMul(q, m) d = ReduceSum(k) y = Div(n, d)",
        "mndky",
    ),
    "behind a rectifier": (
        "r = Relu(k) m = MatMul(r, v) n = MatMul(q, m) d = ReduceSum(r) y = Div(n, d)",
        "mndkry",
    ),
    "moved, scaled and added": (
        "m = MatMul(k, v) t = Transpose(m) s = Mul(t, one) e = Add(s, s) n = MatMul(q, e)"
        " f = Neg(n) g = Clip(f, one) d = MatMul(q, k) y = Div(g, d)",
        "mnfgdy",
    ),
    "three products": (
        "l = MatMul(v, v) m = MatMul(k, l) n = MatMul(q, m) d = MatMul(q, k) y = Div(n, d)",
        "lmndy",
    ),
    "inputs of the model": ("m = MatMul(a, b) n = MatMul(m, c) y = Div(n, a)", "mny"),
    "one product over itself": ("m = MatMul(k, v) y = Div(m, m)", ""),
    "one product, added to itself": ("m = MatMul(k, v) n = Add(m, m) y = Div(n, k)", ""),
    "two products over something else": (
        "m = MatMul(k, v) n = MatMul(q, m) d = Exp(a) y = Div(n, d)",
        "",
    ),
    "two products over a number": ("m = MatMul(k, v) n = MatMul(q, m) y = Div(n, one)", ""),
    "a function of products": (
        "m = MatMul(k, v) n = MatMul(q, m) e = Exp(n) d = MatMul(q, k) y = Div(e, d)",
        "",
    ),
    "a layer behind a product": (
        "m = MatMul(k, v) n = MatMul(m, u) d = MatMul(k, v) y = Div(n, d)",
        "",
    ),
}


@pytest.mark.parametrize("name", FRACTIONS)
def test_a_quotient_of_products_of_the_same_things_is_kept(name: str) -> None:
    body, nodes = FRACTIONS[name]
    assert set(details(body)) == {*nodes}
    assert not details(body, low=BFLOAT16)


def test_the_first_three_products_are_named() -> None:
    products = "[p] p = MatMul(q, k) [o] o = MatMul(v, p) [m] m = MatMul(k, o) [n] n = MatMul(q, m)"
    (detail,) = set(details(f"{products} [quotient] y = Div(n, q)").values())
    assert detail == (
        "nothing bounds products of activations (p, o, m) but their quotient quotient,"
        " float16 ends at 65504"
    )


def test_only_what_was_low_is_kept() -> None:
    body = "m = MatMul(a, b) n = MatMul(m, c) y = Div(n, a)"
    context = context_of(model_of(f"{GRAPH} {{ {body} }}"))
    found = marks_of(KeepQuotients(), context, painting_of(context, ["n", "y"]))
    assert set(found) == {"n", "y"}
