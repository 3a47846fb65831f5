"""What the pass says of phases, and whom it obeys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.rewriting.paint.passes.keep_phases import keep_phases

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


GRAPH = "g (float[8,32] x, float[32,8] z, float e) => (float[N] y)"
NUMBERS = {
    "c": np.linspace(-1, 1, 256).reshape(32, 8),
    "s": np.linspace(-2, 1, 256).reshape(32, 8),
    "nil": 0.0,
    "half": 0.5,
    "minus": -1.0,
    "yes": np.array(True),
    "zero": np.array(0),
    "one": np.array(1),
}
PARTS = "re = MatMul(x, c) im = MatMul(x, s)"


def kept(body: str, **constants: Any) -> set[str]:
    """Return what the nodes make that a phase keeps in float32."""
    model = model_of(f"{GRAPH} {{ {body} }}", **{**NUMBERS, **constants})
    return set(marks_of(keep_phases, context_of(model)))


@pytest.mark.parametrize(
    ("angle", "nodes"),
    [
        ("y = Atan(q)", "qy"),
        ("y = Asin(q)", "qy"),
        ("n = Neg(q) y = Atan(n)", "qny"),
        ("n = Transpose(q) y = Atan(n)", "qny"),
        ("n = Mul(q, half) y = Atan(n)", "qny"),
        ("n = Add(q, half) y = Atan(n)", "qny"),
        ("n = Sub(half, q) y = Atan(n)", "qny"),
        ("n = Max(q, minus) m = Min(n, half) y = Acos(m)", "qmny"),
        ("n = Where(yes, q, half) y = Atan(n)", "qny"),
        ("y = Tan(q)", ""),
        ("n = Exp(q) y = Atan(n)", ""),
        ("n = Mul(q, e) y = Atan(n)", ""),
    ],
)
def test_what_stands_between_a_quotient_and_an_angle(angle: str, nodes: str) -> None:
    found = kept(f"{PARTS} q = Div(im, re) {angle}")
    assert found == ({*nodes, "re", "im"} if nodes else set())


@pytest.mark.parametrize(
    ("quotient", "nodes"),
    [
        ("q = Div(im, re)", "q"),
        ("r = Reciprocal(re) q = Mul(im, r)", "qr"),
        ("r = Reciprocal(re) q = Mul(r, im)", "qr"),
        ("r = Reciprocal(re) t = Identity(r) q = Mul(im, t)", "qrt"),
        ("r = Pow(re, minus) q = Mul(im, r)", "qr"),
        ("q = Mul(im, re)", ""),
        ("q = Div(im, half)", ""),
        ("q = Add(im, re)", ""),
        ("q = Mul(e, z)", ""),
    ],
)
def test_what_divides_makes_a_quotient(quotient: str, nodes: str) -> None:
    found = kept(f"{PARTS} {quotient} y = Atan(q)")
    assert found == ({"re", "im", "y", *nodes} if nodes else set())


@pytest.mark.parametrize(
    ("reader", "is_kept"),
    [
        ("k = Less(re, nil)", True),
        ("k = GreaterOrEqual(nil, im)", True),
        ("k = Exp(re)", False),
        ("k = MatMul(re, z)", False),
    ],
)
def test_what_compares_the_operands_of_a_quotient_is_kept(reader: str, is_kept: bool) -> None:
    found = kept(f"{PARTS} q = Div(im, re) y = Atan(q) {reader}")
    assert found == {"re", "im", "q", "y"} | ({"k"} if is_kept else set())


# The signals that a transform reads.

SIGNALS = {
    "a function": ("f = Tanh(x)", "f"),
    "a harmonic source": ("a = Sin(x) b = Mul(a, half) f = Tanh(b)", "abf"),
    "a sum of a few": ("a = Sin(x) b = MatMul(a, few) d = Transpose(b) f = MatMul(d, back)", ""),
    "arithmetic": ("a = Add(x, x) b = Sub(a, half) d = Div(b, half) f = Relu(d)", "abdf"),
    "a rectifier that hands on": ("f = LeakyRelu(x)", "f"),
    "shares": ("f = Softmax(x)", ""),
    "what a function makes of shares": ("a = Softmax(x) f = Tanh(a)", "f"),
    "a normalization": ("f = LayerNormalization(x, scale)", ""),
    "a layer": ("f = MatMul(x, wide)", ""),
    "a function beside a layer": ("a = Sin(x) b = MatMul(x, wide) f = Add(a, b)", "af"),
    "a function beside shares": ("a = Sin(x) b = Softmax(x) f = Add(a, b)", "af"),
    "a function of a moved constant": ("b = Transpose(wide) a = Cos(x) f = Mul(a, b)", "af"),
    "nothing": ("f = Identity(x)", "f"),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_what_makes_a_signal_is_kept_with_its_spectrum(name: str) -> None:
    signal, nodes = SIGNALS[name]
    found = kept(
        f"{signal} re = MatMul(f, c) im = MatMul(f, s) q = Div(im, re) y = Atan(q)",
        few=np.ones((32, 8)),
        back=np.ones((8, 32)),
        wide=np.linspace(0, 1, 1024).reshape(32, 32),
        scale=np.ones(32),
    )
    assert found >= {"re", "im", "q", "y"}
    assert found - {"re", "im", "q", "y"} == {*nodes} or name == "a sum of a few"
    assert ("a" in found) is ("a" in nodes)


def test_a_sum_of_unknown_length_is_a_layer() -> None:
    body = 'f = Einsum<equation = "...i,ij->...j">(x, few) re = MatMul(f, c) im = MatMul(f, s)'
    found = kept(f"{body} q = Div(im, re) y = Atan(q)", few=np.linspace(0, 1, 1024).reshape(32, 32))
    assert found == {"re", "im", "q", "y"}


def test_a_long_chain_of_functions_is_followed_for_some_nodes() -> None:
    names = ["x", *(f"r{k}" for k in range(70))]
    chain = " ".join(f"{b} = Relu({a})" for a, b in pairwise(names))
    found = kept(f"{chain} re = MatMul(r69, c) im = MatMul(r69, s) q = Div(im, re) y = Atan(q)")
    assert found == {"re", "im", "q", "y", *names[-64:]}
