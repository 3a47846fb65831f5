"""Gradients behind a small guard stay float32, back to a mask or a layer with a bias.

`tests/training/test_steep_gradients.py` trains with such rows.
"""

from __future__ import annotations

import pytest
from pass_marks import context_of, marks_of, painting_of
from rewrite_text import step

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.rewriting.paint.passes.keep_steep_gradients import keep_steep_gradients

FORWARD = """g (float[4,4] x, float[4,4] w, float[4,4] r) => (float[4,4] y)
    <float eps = {1e-12}, float[4] b = {1, 2, 3, 4}> {
    [before] k = Tanh(x)
    [layer] h = MatMul(k, w)
    [norm] n = ReduceL2<axes = [1]>(h)
    [guard] c = Clip(n, eps)
    [quotient] e = Div(h, c)"""
BACKWARD = """
    [g1] d = Div(r, c)
    [g2] s = Add(d, d)
    [g3] p = MatMul(s, w)
    [g4] q = Mul(p, k)
    [g5] z = MatMul(q, w)
    y = Add(z, e) }"""
PARTS = {
    "g1": "gradient of quotient",
    "g2": "gradient of layer",
    "g3": "gradient of layer",
    "g4": "gradient of before",
    "g5": "gradient of first",
}


def kept(text: str, low: DType = FLOAT16) -> set[str]:
    header = '<ir_version: 8, opset_import: ["" : 17]> '
    context = context_of(step(header + text, PARTS), low)
    return {*marks_of(keep_steep_gradients, context, painting_of(context))}


def test_all_that_the_gradient_reaches_is_kept() -> None:
    assert kept(FORWARD + BACKWARD) == {"d", "s", "p", "q", "z"}


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
def test_an_activation_that_masks_it_ends_it(activation: str) -> None:
    text = FORWARD.replace("Tanh", activation) + BACKWARD
    assert kept(text) == {"d", "s", "p", "q"}


def test_a_bias_ends_it() -> None:
    text = FORWARD.replace("[layer] h = MatMul(k, w)", "[layer] h = Gemm(k, w, b)") + BACKWARD
    assert kept(text) == {"d", "s", "p"}
    added = "[layer] h0 = MatMul(k, w) h = Add(b, h0)"
    assert kept(FORWARD.replace("[layer] h = MatMul(k, w)", added) + BACKWARD) == {"d", "s", "p"}


@pytest.mark.parametrize("guard", ["1e-4", "1"])
def test_a_guard_that_is_no_danger_keeps_nothing(guard: str) -> None:
    assert kept(FORWARD.replace("1e-12", guard) + BACKWARD) == set()


def test_a_difference_from_the_mean_is_no_row_of_zeros() -> None:
    centred = "[m] u = ReduceMean<axes = [1]>(h) v = Sub(h, u) [quotient] e = Div(v, c)"
    assert kept(FORWARD.replace("[quotient] e = Div(h, c)", centred) + BACKWARD) == set()


def test_bfloat16_holds_it() -> None:
    assert kept(FORWARD + BACKWARD, BFLOAT16) == set()
