"""Linear attention: products of activations that nothing but their quotient bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, Precision

Array = np.ndarray[Any, Any]

TARGETS = [("float16", "cuda"), ("bfloat16", "cuda"), ("float16", "webgpu")]

TWO_PRODUCTS = """
    kv = MatMul(kt, v) num = MatMul(rq, kv)
    ks = MatMul(kt, ones) den = MatMul(rq, ks) de = Add(den, eps)
    o = Div(num, de)"""
PADDED_VALUES = """
    vp = Concat<axis = 2>(v, ones) kv = MatMul(kt, vp) both = MatMul(rq, kv)
    num = Slice(both, zero, last, axis) den = Slice(both, last, end, axis) de = Add(den, eps)
    o = Div(num, de)"""
SUMMED_KEYS = """
    kv = MatMul(kt, v) num = MatMul(rq, kv)
    st = ReduceSum(rk, tokens) p = Mul(rq, st) den = ReduceSum(p, axis) de = Add(den, eps)
    o = Div(num, de)"""


def _model(quotient: str) -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
    g (float[1,256,32] x) => (float[1,256,32] y)
    <float eps = {{1e-5}}, int64[1] axis = {{2}}, int64[1] tokens = {{1}}, int64[1] zero = {{0}},
     int64[1] last = {{16}}, int64[1] end = {{17}}> {{
        q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
        rq = Relu(q) rk = Relu(k) kt = Transpose<perm = [0, 2, 1]>(rk)
        {quotient}
        y = MatMul(o, wo)
    }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    arrays = {f"w{name}": rng.standard_normal((32, 16)) for name in "qkv"}
    arrays |= {"wo": rng.standard_normal((16, 32)) / 4, "ones": np.ones((1, 256, 1))}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()
    )
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.filterwarnings("ignore:.*stays float32.*:amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("quotient", [TWO_PRODUCTS, PADDED_VALUES, SUMMED_KEYS])
@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_linear_attention_is_right_for_activations_of_any_size(
    precision: Precision, target: str, quotient: str
) -> None:
    model = _model(quotient)
    result = amp.rewrite(model, precision=precision, target=target)
    assert result.report.summary.compute_converted > 0.3
    x = 3 * np.random.default_rng(1).standard_normal((1, 256, 32)).astype(np.float32)
    middle = amp.evaluate(model, {"x": x}, outputs=["de"])["de"]
    assert middle.max() > FLOAT16.max
    expected, found = amp.evaluate(model, {"x": x})["y"], amp.evaluate(result.model, {"x": x})["y"]
    dtype = BFLOAT16 if precision == "bfloat16" else FLOAT16
    atol = 2 * dtype.rtol * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


def test_the_products_are_named_in_a_warning() -> None:
    with pytest.warns(amp.AmpWarning, match="nothing bounds products of activations .MatMul_6"):
        amp.rewrite(_model(TWO_PRODUCTS))


def test_attention_with_a_softmax_stays_low() -> None:
    softmax = """t = MatMul(rq, kt) p = Softmax(t) a = MatMul(p, v) n = Add(eps, eps)
                 o = Mul(a, n)"""
    result = amp.rewrite(_model(softmax))
    assert result.report.summary.compute_converted == 1.0
