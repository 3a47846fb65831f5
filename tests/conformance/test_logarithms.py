"""Logarithms and quotients of small numbers, as exporters write them, in every low type."""

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


def _model(text: str, **weights: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name)
        for name, array in weights.items()
    )
    return model


def _weight(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape) / shape[0] ** 0.5


def _types(result: amp.RewriteResult) -> dict[str, str]:
    """Return op -> the type of its last node."""
    nodes = [node for node in result.report.nodes if node.variables]
    return {node.op: next(iter(node.variables.values())).dtype for node in nodes}


INVERSE_SIGMOID = """g (float[64,32] x) => (float[64,16] y, float[64,16] z)
  <float zero = {0}, float one = {1}, float eps = {1e-5}> {
    h = MatMul(x, w1)
    r = Sigmoid(h)
    c = Clip(r, zero, one)
    upper = Clip(c, eps)
    rest = Sub(one, c)
    lower = Clip(rest, eps)
    q = Div(upper, lower)
    l = Log(q)
    d = MatMul(x, w2)
    u = Add(d, l)
    p = Sigmoid(u)
    y = MatMul(p, w3)
    z = MatMul(u, w3)
  }"""


@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_the_inverse_of_a_saturated_sigmoid_is_right(precision: Precision, target: str) -> None:
    rng = np.random.default_rng(0)
    weights = {"w1": _weight(rng, 32, 4), "w2": _weight(rng, 32, 4), "w3": _weight(rng, 4, 16)}
    model = _model(INVERSE_SIGMOID, **weights)
    low = amp.rewrite(model, precision=precision, target=target)
    assert low.report.summary.compute_converted == 1.0
    feeds = {"x": 6 * rng.standard_normal((64, 32)).astype(np.float32)}
    expected, found = amp.evaluate(model, feeds), amp.evaluate(low.model, feeds)
    rtol = BFLOAT16.rtol if precision == "bfloat16" else FLOAT16.rtol
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=rtol * np.abs(array).max(), rtol=0)


def test_a_quotient_that_may_reach_its_bound_stays_float32() -> None:
    text = """g (float[8,16] x) => (float[8,16] y) <float eps = {1e-5}> {
        h = MatMul(x, w)
        p = Sigmoid(h)
        g = MatMul(x, v)
        r = Sigmoid(g)
        lower = Clip(r, eps)
        q = Div(p, lower)
        y = MatMul(q, v)
    }"""
    rng = np.random.default_rng(1)
    low = amp.rewrite(_model(text, w=_weight(rng, 16, 16), v=_weight(rng, 16, 16)))
    assert _types(low)["Div"] == "float32"
    assert "reaches 1e+05 where it divides by 1e-05" in amp.explain(low, "Div_5")


def test_a_quotient_by_the_sum_of_its_dividend_stays_low() -> None:
    text = """g (float[8,16] x) => (float[8,16] y) <float eps = {1e-5}, int64[1] axes = {-1}> {
        h = MatMul(x, w)
        p = Sigmoid(h)
        most = ReduceMax(p, axes)
        lower = Add(most, eps)
        q = Div(p, lower)
        y = MatMul(q, w)
    }"""
    low = amp.rewrite(_model(text, w=_weight(np.random.default_rng(2), 16, 16)))
    assert _types(low)["Div"] == "float16"


MEL = """g (float[4,201] re, float[4,201] im) => (float[4,40] logmel, float[4,32] y)
  <float eps = {1e-10}> {
    a = Mul(re, re)
    b = Mul(im, im)
    power = Add(a, b)
    mel = MatMul(power, filters)
    most = Clip(mel, eps)
    logmel = Log(most)
    y = MatMul(logmel, w)
  }"""


@pytest.mark.parametrize("scale", [3e-5, 1.0, 32767.0])
@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_the_logarithm_of_a_mel_spectrum_is_right_at_any_loudness(
    precision: Precision, target: str, scale: float
) -> None:
    rng = np.random.default_rng(3)
    filters = np.abs(rng.standard_normal((201, 40))) * (rng.random((201, 40)) < 0.05)
    model = _model(MEL, filters=filters, w=_weight(rng, 40, 32))
    low = amp.rewrite(model, precision=precision, target=target)
    assert low.report.summary.nodes_converted > 0
    shape = (4, 201)
    feeds = {n: scale * rng.standard_normal(shape).astype(np.float32) for n in ("re", "im")}
    expected = amp.evaluate(model, feeds)["logmel"]
    found = amp.evaluate(low.model, feeds)["logmel"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02)


FRONT_END = """g (float[1,1600] samples) => (float[1,32,11] logmel)
  <float eps = {1e-10}, float two = {2}, float half = {0.5}, int64[1] axis = {1}> {
    x = Unsqueeze(samples, axis)
    scaled = Mul(x, half)
    [real] re = Conv<strides = [120]>(scaled, cosines)
    [imaginary] im = Conv<strides = [120]>(scaled, sines)
    a = Pow(re, two)
    b = Pow(im, two)
    power = Add(a, b)
    mel = MatMul(filters, power)
    most = Clip(mel, eps)
    logmel = Log(most)
  }"""


def _front_end() -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    angles = 2 * np.pi * np.outer(np.arange(201), np.arange(400)) / 400
    window = np.hanning(400)
    return _model(
        FRONT_END,
        cosines=(np.cos(angles) * window)[:, None],
        sines=(np.sin(angles) * window)[:, None],
        filters=np.abs(rng.standard_normal((32, 201))) * (rng.random((32, 201)) < 0.05),
    )


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("scale", [1.0, 32767.0])
@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_a_spectrogram_is_right_for_sound_in_either_scale(
    precision: Precision, target: str, scale: float
) -> None:
    model = _front_end()
    low = amp.rewrite(model, precision=precision, target=target)
    feeds = {"samples": scale * np.sin(0.3 * np.arange(1600, dtype=np.float32))[None]}
    expected, found = amp.evaluate(model, feeds)["logmel"], amp.evaluate(low.model, feeds)["logmel"]
    loud = expected > expected.max() - 8  # what leaks beside a tone is the rounding of its samples
    np.testing.assert_allclose(found[loud], expected[loud], rtol=0, atol=0.1)
    assert np.isfinite(found).all()


def test_the_transform_of_a_sound_of_known_range_is_low() -> None:
    with pytest.warns(amp.AmpWarning, match=r"re may reach .* of sound of 16 bits.*--input-range"):
        kept = amp.rewrite(_front_end())
    assert _types(kept)["Conv"] == "float32"
    ranged = amp.rewrite(_front_end(), input_ranges=["samples=-1:1"])
    assert _types(ranged)["Conv"] == "float16"
    assert _types(amp.rewrite(_front_end(), precision="bfloat16"))["Conv"] == "bfloat16"


@pytest.mark.parametrize(("precision", "target"), TARGETS)
def test_the_logarithm_of_a_softmax_is_finite(precision: Precision, target: str) -> None:
    text = """g (float[2,16] x) => (float[2,16] y) {
        h = MatMul(x, w)
        p = Softmax(h)
        y = Log(p)
    }"""
    model = _model(text, w=np.eye(16))
    x = np.zeros((2, 16), np.float32)
    x[:, 0] = 40.0
    low = amp.rewrite(model, precision=precision, target=target).model
    found, expected = amp.evaluate(low, {"x": x})["y"], amp.evaluate(model, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=BFLOAT16.rtol)


def test_the_logarithm_of_what_is_not_small_stays_low() -> None:
    text = """g (float[8,16] x) => (float[8,16] y) <float one = {1}> {
        h = MatMul(x, w)
        a = Relu(h)
        b = Add(a, one)
        l = Log(b)
        y = MatMul(l, w)
    }"""
    low = amp.rewrite(_model(text, w=_weight(np.random.default_rng(4), 16, 16)))
    assert _types(low)["Log"] == "float16"
