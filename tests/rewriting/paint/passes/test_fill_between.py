"""What lies between two allow-list operators joins them."""

from __future__ import annotations

from typing import Any

import pytest
from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.rewriting.paint.passes.fill_between import BETWEEN, FillBetween


def test_clear_and_infer_operators_between_allow_ones_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            r = Relu(h)
            s = Sigmoid(r)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            r = Relu(h)
            s = Sigmoid(r)
            y_fp16 = MatMul(s, s)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_path_with_an_operator_on_no_list_connects_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            c = Cos(h)
            s = Sigmoid(c)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            c = Cos(h_fp32)
            s = Sigmoid(c)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_an_operator_before_the_first_allow_one_lies_between_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            h = MatMul(s, s)
            y = Exp(h)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            s_fp16 = Cast<to = 10>(s)
            h = MatMul(s_fp16, s_fp16)
            h_fp32 = Cast<to = 1>(h)
            y = Exp(h_fp32)
        }""",
    )


def test_a_path_with_an_operator_without_a_kernel_connects_nothing() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            h = MatMul(x, x)
            m = Mish(h)
            s = Sigmoid(m)
            y = MatMul(s, s)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            m = Mish(h_fp32)
            s = Sigmoid(m)
            s_fp16 = Cast<to = 10>(s)
            y_fp16 = MatMul(s_fp16, s_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        target="cuda",
    )


def filled(body: str, low: str, denied: str = "", **fields: Any) -> dict[str, str]:
    """Return what nodes make that become low, and the node that each has it from.

    `fields` are those of the context; `type` is the low type.
    """
    fields["low"] = fields.pop("type", FLOAT16)
    text = f"g (float[4,4] x) => (float[N] y) {{ {body} }}"
    context = context_of(model_of(text), **fields)
    graph = context.type_graph
    found = marks_of(FillBetween(), context, painting_of(context, low, denied))
    assert {mark.reason for mark in found.values()} <= {BETWEEN}
    nodes = {value: graph.nodes[int(mark.because or 0)] for value, mark in found.items()}
    names = graph.flat.value_names
    return {value: names[graph.flat.outputs_of(node)[0]] for value, node in nodes.items()}


HEAD, TAIL = "a = MatMul(x, x)", "y = MatMul(e, x)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("e = Sigmoid(a)", {"e": "a"}),
        ("b = Neg(a) e = Sigmoid(b)", {"b": "a", "e": "b"}),
        ("b = Exp(x) e = Sigmoid(b)", {}),
        ("b = Exp(x) e = Add(a, b)", {"e": "a"}),
        ("b = Cos(a) e = Sigmoid(b)", {}),
        ("b = Neg(a) c = Exp(b) e = Sigmoid(c)", {}),
        ("b = Neg(a) c = Tanh(b) e = Sigmoid(a)", {"e": "a"}),
    ],
)
def test_what_lies_on_a_path_becomes_low(body: str, expected: dict[str, str]) -> None:
    assert filled(f"{HEAD} {body} {TAIL}", "ay") == expected
