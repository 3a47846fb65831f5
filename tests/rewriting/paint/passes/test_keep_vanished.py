"""Epsilons that are zero in the file of a model in 16 bits."""

from __future__ import annotations

import pytest
from rewrite_text import parse

import amp_rewrite as amp

NORM = (
    "g (float16[2,8] x) => (float16[2,8] y) <float16[1] eps = {EPS}, int64[1] axes = {1}> {{"
    " m = ReduceMax(x, axes) a = Abs(m) e = Add(a, eps) s = Sqrt(e) y = Div(x, s) }}"
)


def feared(eps: int) -> dict[str, str]:
    """Return node -> the reason why it is dangerous; `eps` are the bits of float16."""
    text = NORM.replace("{EPS}", f"{{{eps}}}").replace("{{", "{").replace("}}", "}")
    report = amp.check(parse(text), run=False, target="schema")
    return {danger.op: danger.reason for danger in report.dangers}


def test_a_zero_that_guards_a_division_is_feared_up_to_the_division() -> None:
    assert feared(0) == dict.fromkeys(("Add", "Sqrt", "Div"), "constant-underflow")


def test_an_epsilon_that_is_there_is_not() -> None:
    assert feared(1) == {}


def test_a_zero_that_guards_nothing_is_not() -> None:
    text = (
        "g (float16[2,8] x) => (float16[2,8] y) <float16[1] zero = {0}> {"
        " a = Add(x, zero) y = Relu(a) }"
    )
    assert amp.check(parse(text), run=False, target="schema").ok


GUARDS = {
    "a sum": ("e = Add(a, z) y = Div(x, e)", "Add Div"),
    "a sum from the left": ("e = Add(z, a) y = Div(x, e)", "Add Div"),
    "the larger": ("e = Max(a, z) y = Div(x, e)", "Max Div"),
    "of several": ("e = Sum(a, a, z) y = Div(x, e)", "Sum Div"),
    "a reciprocal": ("e = Add(a, z) r = Reciprocal(e) y = Mul(x, r)", "Add Reciprocal"),
    "itself": ("e = Add(a, z) y = Div(e, e)", "Add Div"),
    "what is handed on": (
        "e = Add(a, z) i = Identity(e) s = Sqrt(i) j = Identity(s) y = Div(x, j)",
        "Add Identity Sqrt Identity Div",
    ),
    "something beside": (
        "e = Add(a, z) s = Sqrt(e) t = Relu(e) d = Div(x, s) y = Add(d, t)",
        "Add Sqrt Div",
    ),
    "two roots": (
        "e = Add(a, z) s = Sqrt(e) t = Sqrt(e) d = Div(x, s) f = Div(x, t) y = Add(d, f)",
        "Add Sqrt Sqrt Div Div",
    ),
    "a root beside": ("e = Add(a, z) s = Sqrt(e) y = Div(x, s) f = Sqrt(e)", "Add Sqrt Div"),
    "a root and itself": (
        "e = Add(a, z) s = Sqrt(e) d = Div(x, s) y = Div(d, e)",
        "Add Sqrt Div Div",
    ),
    "roots that join": (
        "e = Add(a, z) s = Sqrt(e) t = Sqrt(e) c = Concat<axis = 1>(s, t)"
        " p, q = Split<axis = 1, num_outputs = 2>(c) y = Div(x, q)",
        "Add Sqrt Sqrt Concat Split Div",
    ),
    "a part": ("e = Add(a, z) p, q = Split<num_outputs = 2>(e) y = Div(x, q)", "Add Split Div"),
    "behind another sum": ("b = Add(a, a) e = Add(b, z) y = Div(x, e)", "Add Div"),
    "a product": ("e = Mul(a, z) y = Div(x, e)", ""),
    "what is divided": ("e = Add(a, z) y = Div(e, x)", ""),
    "what moves zero": ("e = Add(a, z) t = Relu(e) y = Div(x, t)", ""),
}


@pytest.mark.parametrize("name", GUARDS)
def test_what_a_zero_guards_is_feared_on_every_way_to_a_division(name: str) -> None:
    nodes, expected = GUARDS[name]
    text = (
        "g (float16[2,8] x, float16[2,1] a) => (float16[2,8] y) <float16[1] z = {0}> "
        f"{{ {nodes} }}"
    )
    dangers = amp.check(parse(text), run=False, target="schema").dangers
    assert sorted(danger.op for danger in dangers) == sorted(expected.split())
    said = "z, which guards a division, is zero"
    assert {(d.reason, d.detail) for d in dangers} <= {("constant-underflow", said)}
