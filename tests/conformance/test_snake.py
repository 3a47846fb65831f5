"""Snake, the activation of vocoders: its square is bounded, and nothing follows it into float32."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, Precision

SNAKE = """<ir_version: 10, opset_import: ["" : 22]>
g (float[1,4,64] x) => (float[1,4,64] y) <float two = {2}, float[1,4,1] a = {1, 3, 0.5, 8},
  float[1,4,1] b = {1, 0.333333, 2, 0.125}> {
    h = Conv<pads = [1, 1]>(x, w)
    ah = Mul(a, h)
    s = Sin(ah)
    q = Pow(s, two)
    p = Mul(q, b)
    t = Add(h, p)
    y = Conv<pads = [1, 1]>(t, w)
}"""

LAST = """<ir_version: 10, opset_import: ["" : 22]>
g (float[4,16] x) => (float[4,16] y) <float two = {2}, int64[1] axes = {-1}> {
    h = MatMul(x, v)
    s = Tanh(h)
    q = Pow(s, two)
    r = ReduceSum(q, axes)
    t = Add(h, r)
    y = MatMul(t, v)
}"""


def _model(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((4, 4, 3)) / 3, "v": rng.standard_normal((16, 16)) / 4}
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(a.astype(np.float32), n)
        for n, a in arrays.items()
        if n in used
    )
    return model


@pytest.mark.parametrize(
    ("precision", "target"), [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]
)
def test_only_sine_and_square_of_snake_stay_float32(precision: Precision, target: str) -> None:
    model = _model(SNAKE)
    result = amp.rewrite(model, precision=precision, target=target)
    types = {node.op: node.variables["T"].dtype for node in result.report.nodes if node.variables}
    assert types["Add"] == types["Conv"] == precision
    assert types["Pow"] == types["Sin"] == "float32"
    assert "it is on the deny list" in amp.explain(result, "Pow_3")
    assert result.report.summary.casts_added == 4  # two of them at the ends of the model
    x = np.random.default_rng(1).standard_normal((1, 4, 64)).astype(np.float32)
    expected, found = amp.evaluate(model, {"x": x})["y"], amp.evaluate(result.model, {"x": x})["y"]
    dtype = BFLOAT16 if precision == "bfloat16" else FLOAT16
    np.testing.assert_allclose(
        found, expected, atol=2 * dtype.rtol * np.abs(expected).max(), rtol=0
    )


def test_a_small_square_that_is_summed_up_keeps_what_follows_float32() -> None:
    result = amp.rewrite(_model(LAST))
    reasons = {node.op: node.variables["T"].reason for node in result.report.nodes}
    assert reasons["Add"] == "downstream-of-deny"
