"""Variables that a provider's kernels tie together become low together or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from rewrite_text import assert_rewrites, needs_opset, parse, rewritten

import amp_rewrite as amp

BATCH = """<ir_version: 8, opset_import: ["" : %d]>
  g (float[1,2,4,4] x, float[2,2,1,1] k, float[2] s, float[2] v) => (float[1,2,4,4] y) {
    h = Conv(x, k)
    n = BatchNormalization(h, s, s, v, v)
    y = Conv(n, k)
  }"""


def test_cuda_has_kernels_for_statistics_of_the_type_of_the_data_only() -> None:
    assert_rewrites(
        BATCH % 15,
        """g (float[1,2,4,4] x, float[2,2,1,1] k, float[2] s, float[2] v) => (float[1,2,4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            k_fp16 = Cast<to = 10>(k)
            s_fp16 = Cast<to = 10>(s)
            v_fp16 = Cast<to = 10>(v)
            h = Conv(x_fp16, k_fp16)
            n = BatchNormalization(h, s_fp16, s_fp16, v_fp16, v_fp16)
            y_fp16 = Conv(n, k_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        target="cuda",
    )


def test_without_kernels_the_statistics_may_stay_float32() -> None:
    assert_rewrites(
        BATCH % 15,
        """g (float[1,2,4,4] x, float[2,2,1,1] k, float[2] s, float[2] v) => (float[1,2,4,4] y) {
            x_fp16 = Cast<to = 10>(x)
            k_fp16 = Cast<to = 10>(k)
            h = Conv(x_fp16, k_fp16)
            n = BatchNormalization(h, s, s, v, v)
            y_fp16 = Conv(n, k_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
        target="schema",
    )


@pytest.mark.parametrize("opset", [9, 14, 15, 17, 21])
@pytest.mark.parametrize("target", ["cuda", "schema"])
def test_variables_are_low_together_on_cuda_and_before_the_schema_parts_them(
    opset: int, target: str
) -> None:
    result = rewritten(BATCH % opset, target=target)
    node = next(n for n in result.report.nodes if n.op == "BatchNormalization")
    found = {v.dtype for v in node.variables.values()}
    together = target == "cuda" or opset < 14
    assert found == ({"float16"} if together else {"float16", "float32"})


@pytest.mark.parametrize("target", ["cuda", "schema", "webgpu"])
@pytest.mark.parametrize(
    ("opset", "operator"),
    [
        (17, "SimplifiedLayerNormalization"),
        pytest.param(23, "RMSNormalization", marks=needs_opset(23)),
    ],
)
def test_a_normalization_is_a_path_from_layer_to_layer(
    target: str, opset: int, operator: str
) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : {opset}]>
    g (float[2,4] x, float[4,4] w, float[4] s) => (float[2,4] y) {{
        h = MatMul(x, w) n = {operator}(h, s) y = MatMul(n, w) }}"""
    result = rewritten(text, target=target)
    assert result.report.summary.compute_converted == 1.0
    node = next(n for n in result.report.nodes if n.op == operator)
    assert {v.dtype for v in node.variables.values()} == {"float16"}
    assert {c.value for c in result.report.casts} == {"x", "w", "s", "y"}


@pytest.mark.parametrize(("largest", "becomes_low"), [(0.5, True), (1e5, False)])
def test_quantised_experts_are_low_together_with_the_scales_of_their_weights(
    largest: float, becomes_low: bool
) -> None:
    model = parse(
        """g (float[2,64] x, float[2,4] r) => (float[2,64] y) {
            y = com.microsoft.QMoE<k = 2, expert_weight_bits = 4>(x, r, w, s, , v, t)
        }"""
    )
    codes, scales = np.full((4, 64, 32), 137, np.uint8), np.full((4, 64), 0.25, np.float32)
    held = {"w": codes, "s": scales, "v": codes, "t": scales * np.float32(4 * largest)}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in held.items())
    result = amp.rewrite(model)
    (node,) = [n for n in result.report.nodes if n.op == "QMoE"]
    found = {v.dtype for v in node.variables.values()}
    assert found == {"float16" if becomes_low else "float32"}
    after = {t.name: t for t in amp.to_proto(result.model).graph.initializer}
    assert all(after[n] == numpy_helper.from_array(codes, n) for n in ("w", "v"))
