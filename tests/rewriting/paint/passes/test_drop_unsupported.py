"""An allow-list operator that the target cannot run in the low type stays float32."""

from __future__ import annotations

from pass_marks import context_of, marks_of, model_of, painting_of
from rewrite_text import assert_rewrites

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.rewriting.paint.passes.drop_unsupported import DropUnsupported


def test_an_operator_whose_schema_lacks_the_type_stays_float32() -> None:
    assert_rewrites(
        """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = Conv(x, k)
            y = MatMul(c, c)
        }""",
        """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = Conv(x, k)
            c_bf16 = Cast<to = 16>(c)
            y_bf16 = MatMul(c_bf16, c_bf16)
            y = Cast<to = 1>(y_bf16)
        }""",
        precision="bfloat16",
    )


def test_an_operator_without_a_kernel_stays_float32() -> None:
    assert_rewrites(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = com.microsoft.FusedConv(x, k)
            y = MatMul(c, c)
        }""",
        """g (float[1,1,4,4] x, float[1,1,1,1] k) => (float[1,1,4,4] y) {
            c = com.microsoft.FusedConv(x, k)
            c_fp16 = Cast<to = 10>(c)
            y_fp16 = MatMul(c_fp16, c_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        target="cuda",
    )


def test_it_is_said_why_a_seed_leaves_the_painting() -> None:
    text = """g (float[4,4] x, float8e4m3fn[4,4] q, float s) => (float[N] y) {
        a = Celu(x) d = DequantizeLinear(q, s) y = MatMul(a, d) }"""
    for low, expected in (
        (FLOAT16, {"a": "type-unsupported", "d": "quantized"}),
        (BFLOAT16, {"a": "type-unsupported", "d": "quantized"}),
    ):
        context = context_of(model_of(text), low)
        found = marks_of(DropUnsupported(), context, painting_of(context))
        assert {value: str(mark.reason) for value, mark in found.items()} == expected
        assert not marks_of(DropUnsupported(), context, painting_of(context, "y"))
