"""Products of several activations, which no weight bounds: the user is told of the first."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp

STATE_SPACE = """
    b = MatMul(x, w0) c = MatMul(x, w1) s = MatMul(x, w2) step = Softplus(s) z = MatMul(x, w3)
    [inner] bx = Mul(b, x) [discretize] dbx = Mul(step, bx) [readout] cy = Mul(c, dbx)
    sz = Sigmoid(z) g = Mul(z, sz) [gate] p = Mul(cy, g)
    [layer] y = MatMul(p, w4)"""
LINEAR_ATTENTION = """
    q = MatMul(x, w0) k = MatMul(x, w1) v = MatMul(x, w2) kt = Transpose<perm = [0, 2, 1]>(k)
    [state] kv = MatMul(kt, v) [read] o = MatMul(q, kv) r = Add(o, x) y = MatMul(r, w3)"""
RMS_NORMS = """
    q = MatMul(x, w0) k = MatMul(x, w1) two = Constant<value_float = 2.0>()
    q2 = Pow(q, two) qm = ReduceMean(q2) qr = Sqrt(qm) qi = Reciprocal(qr) qn = Mul(q, qi)
    k2 = Mul(k, k) km = ReduceMean(k2) kr = Sqrt(km) kn = Div(k, kr)
    t = Transpose<perm = [0, 2, 1]>(kn) s = MatMul(qn, t) v = MatMul(s, x) y = MatMul(v, w2)"""
GATED_LAYER = """
    g = MatMul(x, w0) u = MatMul(x, w1) s = Sigmoid(g) silu = Mul(g, s) p = Mul(silu, u)
    d = MatMul(p, w2) r = Add(x, d) y = MatMul(r, w3)"""
CUBE_IN_A_GELU = """
    h = MatMul(x, w0) h2 = Mul(h, h) h3 = Mul(h2, h) c = Mul(h3, cubic) i = Add(h, c) t = Tanh(i)
    o = Add(t, one) p = Mul(h, o) y = MatMul(p, w1)"""
ATTENTION = """
    q = MatMul(x, w0) k = MatMul(x, w1) v = MatMul(x, w2) kt = Transpose<perm = [0, 2, 1]>(k)
    s = MatMul(q, kt) a = Softmax(s) o = MatMul(a, v) z = MatMul(x, w3) p = Mul(o, z)
    y = MatMul(p, w4)"""


def _model(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> g (float[1,8,16] x) => (float[1,8,16] y)
        <float one = {{1}}, float cubic = {{0.044715}}> {{ {body} }}"""
    )
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32) / 4, f"w{i}")
        for i in range(5)
        if f"w{i}" in body
    )
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize(
    ("body", "first"),
    [
        (STATE_SPACE, "readout has a product of 4"),
        (LINEAR_ATTENTION, "read has a product of 3"),
    ],
)
def test_the_first_node_with_a_product_of_three_activations_is_named(
    body: str, first: str, target: str
) -> None:
    with pytest.warns(amp.AmpWarning, match=f"{first} activations that nothing bounds"):
        result = amp.rewrite(_model(body), target=target)
    assert result.report.summary.compute_converted == 1.0
    assert first in (result.report.likely_overflow or "")


@pytest.mark.parametrize("target", ["cuda", "webgpu", "schema"])
@pytest.mark.parametrize("body", [GATED_LAYER, CUBE_IN_A_GELU, ATTENTION, RMS_NORMS])
def test_two_activations_and_bounded_factors_are_no_news(body: str, target: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert amp.rewrite(_model(body), target=target).report.likely_overflow is None


def test_a_float32_product_counts_where_a_low_node_reads_it() -> None:
    with pytest.warns(amp.AmpWarning, match="gate has a product of 4 activations"):
        amp.rewrite(_model(STATE_SPACE), deny_nodes=["inner", "discretize", "readout"])


def test_what_is_bounded_denied_or_bfloat16_is_no_news() -> None:
    model = _model(STATE_SPACE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert amp.rewrite(model, precision="bfloat16").report.likely_overflow is None
        assert amp.rewrite(model, input_ranges={"x": (-1, 1)}).report.likely_overflow is None
        denied = amp.rewrite(model, deny_nodes=["readout", "gate", "layer"])
    assert denied.report.likely_overflow is None


def test_the_numbers_that_are_warned_of_do_leave_the_range() -> None:
    model = _model(STATE_SPACE)
    x = 40 * np.random.default_rng(1).standard_normal((1, 8, 16)).astype(np.float32)
    with pytest.warns(amp.AmpWarning):
        result = amp.rewrite(model)
    assert np.isfinite(amp.evaluate(model, {"x": x})["y"]).all()
    assert not np.isfinite(amp.evaluate(result.model, {"x": x})["y"]).all()
