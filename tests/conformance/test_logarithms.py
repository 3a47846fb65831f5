"""Logarithms and quotients of small numbers, as exporters write them, in every low type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from named_nodes import WAYS, error, model, types, weight

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16

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


@pytest.mark.parametrize("way", WAYS)
def test_the_inverse_of_a_saturated_sigmoid_is_right(way: str) -> None:
    rng = np.random.default_rng(0)
    weights = {"w1": weight(rng, 32, 4), "w2": weight(rng, 32, 4), "w3": weight(rng, 4, 16)}
    source = model(INVERSE_SIGMOID, **weights)
    low = amp.rewrite(source, **WAYS[way])
    assert low.report.summary.compute_converted == 1.0
    feeds = {"x": 6 * rng.standard_normal((64, 32)).astype(np.float32)}
    assert max(error(source, low, feeds, name) for name in "yz") < 1


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
    low = amp.rewrite(model(text, w=weight(rng, 16, 16), v=weight(rng, 16, 16)))
    assert types(low)["Div"] == "float32"
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
    low = amp.rewrite(model(text, w=weight(np.random.default_rng(2), 16, 16)))
    assert types(low)["Div"] == "float16"


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
@pytest.mark.parametrize("way", WAYS)
def test_the_logarithm_of_a_mel_spectrum_is_right_at_any_loudness(way: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    filters = np.abs(rng.standard_normal((201, 40))) * (rng.random((201, 40)) < 0.05)
    source = model(MEL, filters=filters, w=weight(rng, 40, 32))
    low = amp.rewrite(source, **WAYS[way])
    assert low.report.summary.nodes_converted > 0
    shape = (4, 201)
    feeds = {n: scale * rng.standard_normal(shape).astype(np.float32) for n in ("re", "im")}
    expected = amp.evaluate(source, feeds)["logmel"]
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
    return model(
        FRONT_END,
        cosines=(np.cos(angles) * window)[:, None],
        sines=(np.sin(angles) * window)[:, None],
        filters=np.abs(rng.standard_normal((32, 201))) * (rng.random((32, 201)) < 0.05),
    )


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("scale", [1.0, 32767.0])
@pytest.mark.parametrize("way", WAYS)
def test_a_spectrogram_is_right_for_sound_in_either_scale(way: str, scale: float) -> None:
    source = _front_end()
    low = amp.rewrite(source, **WAYS[way])
    feeds = {"samples": scale * np.sin(0.3 * np.arange(1600, dtype=np.float32))[None]}
    expected, found = (
        amp.evaluate(source, feeds)["logmel"],
        amp.evaluate(low.model, feeds)["logmel"],
    )
    loud = expected > expected.max() - 8  # what leaks beside a tone is the rounding of its samples
    np.testing.assert_allclose(found[loud], expected[loud], rtol=0, atol=0.1)
    assert np.isfinite(found).all()


def test_the_transform_of_a_sound_of_known_range_is_low() -> None:
    with pytest.warns(
        amp.AmpWarning, match=r"re may reach .* sound as 16-bit integers.*--input-range"
    ):
        kept = amp.rewrite(_front_end())
    assert types(kept)["Conv"] == "float32"
    ranged = amp.rewrite(_front_end(), input_ranges=["samples=-1:1"])
    assert types(ranged)["Conv"] == "float16"
    assert types(amp.rewrite(_front_end(), precision="bfloat16"))["Conv"] == "bfloat16"


@pytest.mark.parametrize("way", WAYS)
def test_the_logarithm_of_a_softmax_is_finite(way: str) -> None:
    text = """g (float[2,16] x) => (float[2,16] y) {
        h = MatMul(x, w)
        p = Softmax(h)
        y = Log(p)
    }"""
    source = model(text, w=np.eye(16))
    x = np.zeros((2, 16), np.float32)
    x[:, 0] = 40.0
    low = amp.rewrite(source, **WAYS[way]).model
    found, expected = amp.evaluate(low, {"x": x})["y"], amp.evaluate(source, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=BFLOAT16.rtol)


def test_the_logarithm_of_what_is_not_small_stays_low() -> None:
    text = """g (float[8,16] x) => (float[8,16] y) <float one = {1}> {
        h = MatMul(x, w)
        a = Relu(h)
        b = Add(a, one)
        l = Log(b)
        y = MatMul(l, w)
    }"""
    low = amp.rewrite(model(text, w=weight(np.random.default_rng(4), 16, 16)))
    assert types(low)["Log"] == "float16"
