"""What of a training step stays float32 by construction, whatever the lists say."""

from __future__ import annotations

import pytest
from pass_marks import context_of, marks_of
from rewrite_text import assert_rewrites, step

from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.rewriting.paint.passes.keep_parts import keep_parts


def test_the_update_stays_float32_although_it_lies_between_allow_operators() -> None:
    before = step(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            [u] u = Add(h, h)
            y = MatMul(u, u)
        }""",
        {"u": "update"},
    )
    assert_rewrites(
        before,
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [u] u = Add(h_fp32, h_fp32)
            u_fp16 = Cast<to = 10>(u)
            y_fp16 = MatMul(u_fp16, u_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_the_loss_and_its_gradient_stay_float32() -> None:
    before = step(
        """g (float[4,4] x, float[4,4] d) => (float[4,4] y, float[4,4] l) {
            [f] h = MatMul(x, x)
            [s] l = Sigmoid(h)
            [g] k = Mul(l, d)
            [m] y = MatMul(k, k)
        }""",
        {"g": "gradient of s", "m": "gradient of f"},
        loss="l",
    )
    assert_rewrites(
        before,
        """g (float[4,4] x, float[4,4] d) => (float[4,4] y, float[4,4] l) {
            x_fp16 = Cast<to = 10>(x)
            [f] h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            [s] l = Sigmoid(h_fp32)
            [g] k = Mul(l, d)
            k_fp16 = Cast<to = 10>(k)
            [m] y_fp16 = MatMul(k_fp16, k_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


LOSS, GRADIENT = "the loss", "the gradient of the loss"
SUM_OVER_AXES = "a sum over axes in a gradient"
COUNT = "it computes with a number of elements"
SUM = "the sum of the gradients that arrive at a variable"


def marks(body: str, parts: str = "", loss: str = "") -> dict[str, str]:
    """Return what nodes make that stay float32, and why.

    `parts` are node, part and, of gradients, the node that it is of: "u=update d=gradient/f".
    """
    text = f"g (float[4,4] x, float[4,4] z, int64[1] n, bool c) => (float[N] y) {{ {body} }}"
    named = (word.split("=") for word in parts.split())
    parts_of = {node: part.replace("/", " of ") for node, part in named}
    held = step(text, parts_of, loss)
    inner = [n for node in held.graph.node for a in node.attribute for n in a.g.node]
    for node in inner:
        if node.name in parts_of:
            node.metadata_props.add(key=PART_KEY, value=parts_of[node.name].split()[0])
    found = marks_of(keep_parts, context_of(held))
    return {value: str(mark.detail) for value, mark in found.items()}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("[h] h = MatMul(x, x) [a] a = Sigmoid(h) [l] l = Exp(a) [u] y = Exp(z)", "al"),
        ("[h] h = MatMul(x, x) [a] a = Sigmoid(h) [l] l = MatMul(a, a) [u] y = Exp(z)", "al"),
        ("[l] l = MatMul(x, x) [u] y = Exp(z)", "l"),
        ("[a] a = Exp(x) [l] l = Sigmoid(a) [k] k = MatMul(l, l) [u] y = Exp(k)", "l"),
        ("[a] a = Exp(x) [h] h = MatMul(a, z) [l] l = Add(a, h) [u] y = Exp(z)", "l"),
    ],
)
def test_the_loss_is_what_follows_the_last_products(body: str, kept: str) -> None:
    found = marks(body, "u=update", "l")
    assert found.pop("y") == "part update of the training step"
    assert found == dict.fromkeys(kept, LOSS)


# Sums over axes.


@pytest.mark.parametrize(
    ("body", "parts", "kept"),
    [
        ("[a] t = Mul(x, z) [b] s = ReduceSum(t) [c] y = Sub(t, s)", "a=f b=f c=f", "tsy"),
        ("[a] t = Mul(x, z) [b] s = ReduceSum(t) [c] y = Sub(t, s)", "a=f b=f c=k", "s"),
        ("[a] t = Mul(x, z) [b] s = ReduceSum(t) [c] y = Sub(t, s)", "a=f b=f", "s"),
        ("[a] t = Mul(x, z) [b] s = ReduceSum(t) [c] y = Neg(s)", "a=f b=f c=f", "ts"),
        ("[a] t = MatMul(x, z) [b] s = ReduceSum(t) [c] y = Neg(s)", "a=f b=f c=f", "s"),
        ("[a] t = Mul(x, z) [b] s = Exp(t) [c] y = Sub(t, s)", "a=f b=f c=f", ""),
        ("[a] t = Mul(x, z) [b] s = ReduceMax(t) [c] y = Sub(t, s)", "a=f b=f c=f", ""),
        (
            "[a] t = Mul(x, z) [b] s = ReduceSum(t) [c] d = Sub(t, s) [e] e = Mul(x, z)"
            " [g] r = ReduceSum(e) [h] y = Sub(d, r)",
            "a=f b=f c=f e=k g=k",
            "tsdr",
        ),
    ],
)
def test_a_rule_that_goes_on_with_a_sum_stays_as_a_whole(body: str, parts: str, kept: str) -> None:
    given = " ".join(f"{part.replace('=', '=gradient/')}" for part in parts.split())
    assert marks(body, given) == dict.fromkeys(kept, SUM_OVER_AXES)


# Numbers of elements.


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("[a] k = Cast<to = 1>(n) [b] y = Div(x, k)", "y"),
        ("[a] k = Cast<to = 1>(n) [b] m = Neg(k) [c] y = Div(x, m)", "my"),
        ("[h] h = Exp(x) [a] k = Cast<to = 1>(n) [b] m = Div(h, k) [c] y = Mul(m, h)", "m"),
        ("[a] k = Cast<to = 1>(n) [b] m = Neg(k) [c] o = Add(k, m) [d] y = Div(x, o)", "moy"),
        ("[a] k = Cast<to = 1>(c) [b] y = Div(x, k)", ""),
        ("[a] i = Cast<to = 6>(n) [b] k = Cast<to = 1>(i) [c] y = Div(x, k)", "y"),
        ("[a] i = Cast<to = 3>(n) [b] k = Cast<to = 1>(i) [c] y = Div(x, k)", ""),
        ("[a] k = Exp(x) [b] y = Div(x, k)", ""),
        (
            "e = Constant<value_int = 4>() v = Constant<value_floats = [0.0, 1.0]>() "
            "[a] k = OneHot(n, e, v) [b] y = Div(x, k)",
            "",
        ),
        ("[z] k = Cast<to = 1>(n) [b] y = Div(x, k)", ""),
    ],
)
def test_what_computes_with_a_number_of_elements_stays(body: str, kept: str) -> None:
    assert marks(body, " ".join(f"{node}=gradient/f" for node in "abcd")) == dict.fromkeys(
        kept, COUNT
    )


# Sums of gradients.


@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        ("[a] s = Add(x, z) [u] y = Exp(s)", True),
        ("[a] s = Sum(x, z, x) [u] y = Exp(s)", True),
        ("[a] s = Add(x, z) [b] t = Transpose(s) [c] r = Neg(t) [u] y = Exp(r)", True),
        ("[a] s = Add(x, z) [b] t = Transpose(s) [u] y = Exp(t) [u] k = Exp(s)", True),
        ("[a] s = Mul(x, z) [u] y = Exp(s)", False),
        ("[a] s = Add(x, z) [b] y = Exp(s)", False),
        ("[a] s = Add(x, z) [u] y = Exp(s) [b] t = Exp(s)", False),
        ("[a] s = Add(x, z) [u] y = Exp(s) [z] t = Transpose(s)", False),
        ("[a] s = Add(x, z) [b] t = Exp(s) [u] y = Exp(t)", False),
        ("[a] s = Add(x, z) [b] y = Transpose(s)", False),
        ("[a] s = Add(x, z) [u] k = Exp(x) [b] y = Exp(z)", False),
        ("[z] s = Add(x, z) [u] y = Exp(s)", False),
    ],
)
def test_a_sum_that_only_the_update_reads_stays(body: str, is_kept: bool) -> None:
    parts = "a=gradient/f b=gradient/f c=gradient/f u=update"
    found = marks(body, parts)
    assert {value for value, why in found.items() if why == SUM} == ({"s"} if is_kept else set())
