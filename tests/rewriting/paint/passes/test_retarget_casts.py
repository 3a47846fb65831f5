"""A Cast to float32 whose consumers are all low casts to the low type instead."""

from __future__ import annotations

from typing import Any

from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.passes.retarget_casts import retarget_casts


def test_a_cast_of_integers_that_only_low_operators_read_is_retargeted() -> None:
    assert_rewrites(
        """g (int8[4,4] x) => (float[4,4] y) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
        }""",
        """g (int8[4,4] x) => (float[4,4] y) {
            c = Cast<to = 10>(x)
            y_fp16 = MatMul(c, c)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def test_a_cast_that_a_float32_operator_reads_as_well_stays() -> None:
    assert_rewrites(
        """g (int8[4,4] x) => (float[4,4] y, float[4,4] z) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
            z = Exp(c)
        }""",
        """g (int8[4,4] x) => (float[4,4] y, float[4,4] z) {
            c = Cast<to = 1>(x)
            c_fp16 = Cast<to = 10>(c)
            y_fp16 = MatMul(c_fp16, c_fp16)
            y = Cast<to = 1>(y_fp16)
            z = Exp(c)
        }""",
    )


def test_a_cast_that_makes_an_output_stays() -> None:
    assert_rewrites(
        """g (double[4,4] x) => (float[4,4] c, float[4,4] y) {
            c = Cast<to = 1>(x)
            y = MatMul(c, c)
        }""",
        """g (double[4,4] x) => (float[4,4] c, float[4,4] y) {
            c = Cast<to = 1>(x)
            c_fp16 = Cast<to = 10>(c)
            y_fp16 = MatMul(c_fp16, c_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


def retargeted(body: str, low: str, denied: str = "", **fields: Any) -> set[str]:
    """Return what Casts make that become low; `type` is the low type."""
    fields["low"] = fields.pop("type", FLOAT16)
    head = f'<ir_version: 7, opset_import: ["" : {fields.pop("opset", 21)}]>'
    text = f"{head} g (int8[4,4] x, float[4,4] z) => (float[N] y) {{ {body} }}"
    context = context_of(model_of(text), **fields)
    return set(marks_of(retarget_casts, context, painting_of(context, low, denied)))


def test_a_cast_that_may_not_be_touched_stays() -> None:
    body = "[cast] c = Cast<to = 1>(x) a = Neg(c) y = Exp(z)"
    assert retargeted(body, "a") == {"c"}
    assert retargeted(body, "ac") == set()
    assert retargeted(body, "a", type=FLOAT16) == {"c"}
    assert retargeted(body, "a", type=BFLOAT16, opset=12) == set()  # without bfloat16
    assert retargeted(body, "a", rules=NodeRules(preserve=frozenset({"cast"}))) == set()
