"""Logarithms of small numbers keep what computes their arguments in float32, as far as needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import rewritten

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.rewriting.paint.passes.keep_logarithms import keep_logarithms

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


def test_a_node_that_the_user_allows_stays_low() -> None:
    body, eps = "[product] p = MatMul(h, w) " + LOG, ", float eps = {1e-10}"
    assert "product" not in kept(body, eps, allow_nodes=["product"])


NUMBERS = {
    "w": np.full((4, 4), 0.25),
    "eye": np.eye(4),
    "two": 2.0,
    "three": 3.0,
    "half": 0.5,
    "minus": -1.0,
    "one": 1.0,
    "nil": 0.0,
    "hundred": 100.0,
    "bit": 1e-3,
    "flat": np.array([16]),
}
GRAPH = "g (float[4,4] x, float[4,4] z, float e) => (float[N] y)"


def details(body: str, eps: float = 1e-10, /, **changes: Any) -> dict[str, str]:
    """Return what nodes make that logarithms keep in float32, all being low, and why."""
    constants = {name: changes.pop(name) for name in [*changes] if name in ("w", *NUMBERS)}
    model = model_of(f"{GRAPH} {{ {body} }}", **{**NUMBERS, "eps": eps, **constants})
    context = context_of(model, **changes)
    marks = marks_of(keep_logarithms, context, painting_of(context))
    return {value: str(mark.detail) for value, mark in marks.items()}


def made(body: str, eps: float = 1e-10, /, **changes: Any) -> set[str]:
    """Return what nodes make that logarithms keep in float32, all being low."""
    return set(details(body, eps, **changes))


# What is never zero.


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = Softmax(x) y = Log(p)", "py"),
        ("p = Exp(x) y = Log(p)", "py"),
        ("p = Softmax(x) t = Transpose(p) u = Identity(t) y = Log(u)", "ptuy"),
        ("p = Softmax(x) t = Reshape(p, flat) y = Log(t)", "pty"),
        ("p = Tanh(x) y = Log(p)", ""),
        ("p = Softmax(x) t = Mul(p, z) y = Log(t)", ""),
        ("t = Transpose(x) y = Log(t)", ""),
    ],
)
def test_what_is_never_zero_may_be_so_in_float16(body: str, expected: str) -> None:
    found = details(body)
    assert set(found) == {*expected}
    assert all("what is never zero may be so in float16" in why for why in found.values())
    assert not details(body, low=BFLOAT16)


# Differences that cancel.


@pytest.mark.parametrize(
    ("body", "eps", "is_kept"),
    [
        ("p = Sigmoid(x) q = Sigmoid(z) d = Sub(q, p) y = Log(d)", 1.0, True),
        ("p = Sigmoid(x) q = Sigmoid(z) d = Sub(q, p) a = Abs(d) y = Log(a)", 1.0, True),
        ("p = Sigmoid(x) d = Sub(one, p) c = Clip(d, eps) y = Log(c)", 2.0**-11, True),
        ("p = Sigmoid(x) d = Sub(one, p) c = Clip(d, eps) y = Log(c)", 2.0**-11 * 1.01, False),
        ("p = Sigmoid(x) d = Sub(hundred, p) c = Clip(d, eps) y = Log(c)", 2.0**-11 * 1.01, False),
        ("p = Sigmoid(x) d = Sub(bit, p) c = Clip(d, eps) y = Log(c)", 1e-5, False),
        ("p = Sigmoid(x) d = Sub(nil, p) y = Log(d)", 1.0, False),
        ("d = Sub(one, x) y = Log(d)", 1.0, False),
        ("d = Sub(x, one) y = Log(d)", 1.0, False),
        ("p = Sigmoid(x) d = Add(one, p) y = Log(d)", 1.0, False),
        ("p = Sigmoid(x) d = Sub(one, p) m = Tanh(d) y = Log(m)", 1.0, False),
    ],
)
def test_a_difference_of_bounded_numbers_is_kept(body: str, eps: float, is_kept: bool) -> None:
    found = details(body, eps)
    nodes = {word for word in body.split() if len(word) == 1 and word.isalpha()}
    assert set(found) == (nodes if is_kept else set())
    rough = "a difference of numbers that float16 holds too roughly"
    assert all(why.endswith(rough) for why in found.values())


def test_a_difference_is_kept_in_bfloat16_from_larger_guards_on() -> None:
    body = "p = Sigmoid(x) d = Sub(one, p) c = Clip(d, eps) y = Log(c)"
    assert made(body, 2.0**-8, low=BFLOAT16) == {"p", "d", "c", "y"}
    assert not made(body, 2.0**-8 * 1.01, low=BFLOAT16)


# Transforms of loud sound.

LOUD, QUIET = np.full((4, 4), 0.9), np.full((4, 4), 0.4)
TAIL = "c = Max(s, bit) y = Log(c)"
SIGNALS = {
    "an input": ("h = MatMul(x, w)", LOUD, "h"),
    "a quiet one": ("h = MatMul(x, w)", QUIET, ""),
    "of either sign": ("h = MatMul(x, w)", LOUD * np.array([1, -1, 1, -1]), "h"),
    "amplified": ("k = Mul(x, two) h = MatMul(k, w)", QUIET, "kh"),
    "amplified, turned round": ("k = Mul(two, x) h = MatMul(k, w)", QUIET, "kh"),
    "halved": ("k = Mul(x, half) h = MatMul(k, w)", LOUD, ""),
    "divided by two": ("k = Div(x, two) h = MatMul(k, w)", LOUD, ""),
    "moved": ("k = Transpose(x) h = MatMul(k, w)", LOUD, "h"),
    "moved and halved": ("j = Transpose(x) k = Mul(j, half) h = MatMul(k, w)", LOUD, ""),
    "cast": ("j = Cast<to = 11>(x) k = Cast<to = 1>(j) h = MatMul(k, w)", LOUD, "h"),
    "a reciprocal": ("k = Div(one, x) h = MatMul(k, w)", LOUD, ""),
    "a product of two": ("k = Mul(x, z) h = MatMul(k, w)", LOUD, ""),
    "a quotient of two": ("k = Div(x, z) h = MatMul(k, w)", LOUD, ""),
    "a function": ("k = Tanh(x) h = MatMul(k, w)", LOUD, ""),
    "two signals": ("h = MatMul(x, z)", LOUD, ""),
    "two constants": ("h = MatMul(w, w)", LOUD, ""),
    "no transform": ("h = Add(x, w)", LOUD, ""),
    "moved behind it": ("g = MatMul(x, w) f = Transpose(g) h = Identity(f)", LOUD, "gfh"),
    "bent behind it": ("g = MatMul(x, w) h = Abs(g)", LOUD, "gh"),
    "a sum of unknown length": ('h = Einsum<equation = "...i,ij->...j">(x, w)', LOUD, ""),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_transform_of_an_input_may_be_loud(name: str) -> None:
    transform, weights, expected = SIGNALS[name]
    body = f"{transform} s = Mul(h, h) {TAIL}"
    assert made(body, w=weights) == {*expected}
    assert not made(body, w=weights, low=BFLOAT16)


# Sums and products of what is never zero, and of what float16 loses.

FAINT = np.exp(-np.abs(np.arange(4)[:, None] - np.arange(4)) / 0.1)
HIDDEN = {
    "a product with ones": ("p = Exp(x) s = MatMul(p, w) y = Log(s)", np.ones((4, 4)), "psy"),
    "with positive weights": ("p = Exp(x) s = MatMul(p, w) y = Log(s)", LOUD + np.eye(4), "psy"),
    "by Einsum": (
        'p = Exp(x) s = Einsum<equation = "ij,jk->ik">(p, w) y = Log(s)',
        np.ones((4, 4)),
        "psy",
    ),
    "a power of two": ("p = Pow(two, x) s = MatMul(p, w) y = Log(s)", np.ones((4, 4)), "psy"),
    "a product of two": ("p = Sigmoid(x) q = Sigmoid(z) s = Mul(p, q) y = Log(s)", LOUD, "pqsy"),
    "of all": ("p = Sigmoid(x) s = ReduceProd(p) y = Log(s)", LOUD, "psy"),
    "a sum": ("p = Sigmoid(x) y = ReduceLogSum(p)", LOUD, "py"),
    "less nothing": ("p = Sigmoid(x) d = Sub(p, nil) y = Log(d)", LOUD, "pdy"),
    "a faint kernel": ("s = MatMul(x, w) y = Log(s)", FAINT, "sy"),
    "a faint factor": ("s = Mul(x, w) y = Log(s)", FAINT, "sy"),
    "a kernel that is computed": ("q = Exp(w) s = MatMul(x, q) y = Log(s)", np.log(FAINT), "qsy"),
    "guarded": ("p = Exp(x) s = MatMul(p, w) a = Add(s, one) y = Log(a)", np.ones((4, 4)), ""),
    "of either sign": ("s = MatMul(x, w) t = Abs(s) y = Log(t)", FAINT - 0.5, ""),
    "a layer behind": ("p = Exp(x) s = MatMul(p, w) y = Log(s)", FAINT - 0.5, ""),
    "data": ("p = Relu(x) s = MatMul(p, w) y = Log(s)", np.ones((4, 4)), ""),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_sums_and_products_that_vanish_are_kept(name: str) -> None:
    body, weights, expected = HIDDEN[name]
    assert made(body, w=weights) == {*expected}


TABLES = {
    "window and table": ("t = Mul(w, half) h = MatMul(x, t)", np.full((4, 4), 1.8), "h"),
    "a cosine": ("u = Cos(w) t = Mul(u, two) h = MatMul(x, t)", np.full((4, 4), 0.1), "h"),
    "frames": ("k = MatMul(x, eye) f = Mul(k, one) h = MatMul(f, w)", LOUD, "kh"),
    "a window behind": ("g = MatMul(x, w) h = Mul(g, half)", LOUD, "g"),
    "pre-emphasis": ("k = Mul(x, half) d = Sub(x, k) h = MatMul(d, w)", LOUD, "h"),
}


@pytest.mark.parametrize(
    "square", ["Mul(h, h)", "Pow(h, two)", "ReduceSumSquare(h)", "ReduceL2(h)"]
)
@pytest.mark.parametrize("name", TABLES)
def test_tables_may_be_computed_and_windows_stand_anywhere(name: str, square: str) -> None:
    transform, weights, expected = TABLES[name]
    body = f"{transform} s = {square} {TAIL}"
    assert made(body, w=weights, eye=np.eye(4)) >= {*expected}
    bounded = body.replace("(x, ", "(v, ")
    assert not made(f"v = Tanh(x) {bounded}", w=weights, eye=np.eye(4))
