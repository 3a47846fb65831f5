"""Operators without numerical effect join the allow-list operators next to them."""

from __future__ import annotations

from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.rewriting.paint.passes.grow_clear import grow_clear


def test_clear_operators_on_either_side_of_an_allow_one_become_low() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            r = Relu(x)
            h = MatMul(r, r)
            a = Relu(h)
            y = Exp(a)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            r = Relu(x_fp16)
            h = MatMul(r, r)
            a = Relu(h)
            a_fp32 = Cast<to = 1>(a)
            y = Exp(a_fp32)
        }""",
    )


def test_clear_operators_grow_through_clear_ones_and_stop_at_others() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            a = Relu(s)
            b = Neg(a)
            y = MatMul(b, b)
        }""",
        """g (float[4,4] x) => (float[4,4] y) {
            s = Sigmoid(x)
            s_fp16 = Cast<to = 10>(s)
            a = Relu(s_fp16)
            b = Neg(a)
            y_fp16 = MatMul(b, b)
            y = Cast<to = 1>(y_fp16)
        }""",
        infer_after_allow=False,
    )


def test_a_plain_read_of_a_variable_is_left_alone() -> None:
    text = "g (float[4,4] x) => (float[N] y) { i = Identity(x) n = Neg(i) y = MatMul(n, n) }"
    context = context_of(model_of(text))
    x = context.type_graph.flat.value_names.index("x")
    for variables, expected in ((frozenset[int](), {"i", "n"}), (frozenset({x}), {"n"})):
        context = context_of(model_of(text), variables=variables)
        assert set(marks_of(grow_clear, context, painting_of(context, "y"))) == expected
