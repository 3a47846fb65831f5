"""Epsilons that are zero in the file of a model in 16 bits."""

from __future__ import annotations

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
