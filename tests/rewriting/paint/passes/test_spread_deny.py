"""What follows a dangerous operator stays float32 up to the next allow-list operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.base.name_patterns import NamePattern
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.painting import Color
from amp_rewrite.rewriting.paint.passes.spread_deny import spread_deny


def test_what_follows_a_denied_operator_stays_float32_although_it_lies_between_allow_ones() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            s = Add(e, h_fp32)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_denial_passes_through_clear_and_infer_operators() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            r = Relu(e)
            q = Sqrt(r)
            d = Div(h, q)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            r = Relu(e)
            q = Sqrt(r)
            d = Div(h_fp32, q)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_clear_operator_behind_the_last_denied_infer_one_may_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            r = Relu(s)
            y = MatMul(r, r)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            e = Exp(h_fp32)
            s = Add(e, h_fp32)
            s_fp16 = Cast<to = 10>(s)
            r = Relu(s_fp16)
            y_fp16 = MatMul(r, r)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_sums_of_squares_of_pow_stay_float32_up_to_the_next_allow_operator() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y)
        <float two = {2}> {
            h = MatMul(x, x)
            s = Pow(h, two)
            r = ReduceMean(s)
            q = Sqrt(r)
            d = Div(h, q)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y)
        <float two = {2}> {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Pow(h_fp32, two)
            r = ReduceMean(s)
            q = Sqrt(r)
            d = Div(h_fp32, q)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_unsafe_force_all_denies_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            e = Exp(h)
            s = Add(e, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            e = Exp(h)
            s = Add(e, h)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
        level="UNSAFE_FORCE_ALL",
    )


def test_the_square_that_a_denied_reduction_sums_stays_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, h)
            r = ReduceMean(s)
            d = Div(h, r)
            y = MatMul(d, d)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            s = Mul(h_fp32, h_fp32)
            r = ReduceMean(s)
            d = Div(h_fp32, r)
            d_fp16 = Cast<to = 10>(d)
            y_fp16 = MatMul(d_fp16, d_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_square_that_nothing_sums_is_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            s = Mul(h, h)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            s = Mul(h, h)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def colors(body: str, low: str = "", **fields: Any) -> dict[str, str]:
    """Return what nodes make that the pass marks, and why: those that are denied in capitals."""
    text = f"g (float[4,4] x, float[4,4] z, float e) => (float[N] y) {{ {body} }}"
    numbers = {"two": 2.0, "top": 15.9, "more": 16.02, "nil": 0.0, "axes": np.array([1])}
    model = model_of(text, **numbers)
    context = context_of(model, **fields)
    found = marks_of(spread_deny, context, painting_of(context, low.split()))
    return {
        value.upper() if mark.color is Color.DENY else value: str(mark.reason)
        for value, mark in found.items()
    }


DENIED, BEHIND, SQUARE = "deny-list", "downstream-of-deny", "square-before-reduction"


def test_a_power_that_the_user_allows_is_no_denied_one() -> None:
    rules = NodeRules(allow=(NamePattern.of("power", "here"),))
    assert colors("a = Sin(x) [power] p = Pow(a, two) y = Add(p, x)", rules=rules) == {}
    two = "a = Sin(x) [power] p = Pow(a, two) q = Pow(a, two) y = Add(p, q)"
    assert colors(two, rules=rules) == {"q": DENIED}
