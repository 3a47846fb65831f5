"""An allow-list operator that the target cannot run in the low type stays float32."""

from __future__ import annotations

from rewrite_text import assert_rewrites


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
