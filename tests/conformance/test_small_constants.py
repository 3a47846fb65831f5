"""Small numbers that something is divided by, and weights whose rows add up to much."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from named_nodes import WAYS, error, model

import amp_rewrite as amp

RNG = np.random.default_rng(11)


def _normalized(variance: list[float], epsilon: float, size: float = 3e-5) -> onnx.ModelProto:
    """Return two convolutions with a BatchNormalization between them."""
    n = len(variance)
    return model(
        f"""g (float[1,{n},4,4] x) => (float[1,{n},4,4] y) {{
            c = Conv<kernel_shape = [1,1]>(x, w)
            n = BatchNormalization<epsilon = {epsilon:g}>(c, s, b, m, v)
            y = Conv<kernel_shape = [1,1]>(n, u) }}""",
        w=RNG.standard_normal((n, n, 1, 1)) * size,
        s=np.ones(n),
        b=np.zeros(n),
        m=np.zeros(n),
        v=variance,
        u=RNG.standard_normal((n, n, 1, 1)) / 3,
    )


@pytest.mark.parametrize(
    "variance", [[9e-9] * 8, [9e-9, *[1.0] * 7], [1e-6] * 8], ids=["zero", "one of many", "rounded"]
)
@pytest.mark.parametrize("way", WAYS)
def test_a_small_variance_keeps_its_normalization_float32(way: str, variance: list[float]) -> None:
    source, x = _normalized(variance, 1e-10), RNG.standard_normal((1, 8, 4, 4)).astype(np.float32)
    result = amp.rewrite(source, **WAYS[way])
    assert result.report.summary.compute_converted == 1.0
    assert error(source, result, {"x": x}) < 1


def test_the_note_names_the_variance() -> None:
    result = amp.rewrite(_normalized([9e-9] * 8, 1e-10))
    assert "constant v = 9e-09 rounds to zero in float16, and divides" in amp.explain(
        result, "BatchNormalization_1"
    )


def test_a_variance_far_below_its_epsilon_stays_low() -> None:
    result = amp.rewrite(_normalized([9e-9] * 8, 1e-5, size=0.1))
    assert result.report.summary.nodes_converted == 3


@pytest.mark.parametrize(
    "divides", ["d = Div(h, c)", "r = Reciprocal(c) d = Mul(h, r)", "i = Identity(c) d = Div(h, i)"]
)
@pytest.mark.parametrize("small", [2e-8, 1.3e-7])
def test_one_small_element_of_a_divisor_keeps_it_float32(divides: str, small: float) -> None:
    text = f"g (float[2,4] x) => (float[2,4] y) {{ h = MatMul(x, w) {divides} y = MatMul(d, u) }}"
    source = model(text, w=np.eye(4) * 1e-4, c=[small, 1, 1, 1], u=np.eye(4) * 1e-3)
    x = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)
    result = amp.rewrite(source)
    assert result.report.summary.compute_converted == 1.0
    assert error(source, result, {"x": x}) < 1


def test_a_divisor_in_range_stays_low() -> None:
    text = "g (float[2,4] x) => (float[2,4] y) { h = MatMul(x, w) d = Div(h, c) y = MatMul(d, w) }"
    result = amp.rewrite(model(text, w=np.eye(4), c=[1e-3, 1, 2, 0.5]))
    assert result.report.summary.nodes_converted == 3


def _transform(n: int) -> onnx.ModelProto:
    """Return a network behind the Fourier transform of pictures, as products."""
    angles = 2 * np.pi * np.outer(np.arange(n), np.arange(n)) / n
    return model(
        f"""g (float[1,1,{n},{n}] x) => (float[1,1,{n},{n}] y) {{
            c = Conv<kernel_shape = [1,1]>(x, w) h = Relu(c)
            re0 = MatMul(h, co) im0 = MatMul(h, si) re1 = MatMul(co, re0) re2 = MatMul(si, im0)
            re = Sub(re1, re2) d = Div(re, n) y = Conv<kernel_shape = [1,1]>(d, w) }}""",
        w=np.ones((1, 1, 1, 1)),
        co=np.cos(angles),
        si=-np.sin(angles),
        n=float(n),
    )


@pytest.mark.parametrize("way", ["bfloat16", "webgpu"])
def test_a_fourier_transform_is_right_in_each_type(way: str) -> None:
    source = _transform(512)
    with warnings.catch_warnings(action="ignore", category=amp.AmpWarning):
        result = amp.rewrite(source, **WAYS[way])
    assert result.report.summary.compute_converted > 0.4
    x = np.random.default_rng(0).random((1, 1, 512, 512)).astype(np.float32)
    assert error(source, result, {"x": x}) < 1


@pytest.mark.parametrize("n", [400, 640])
def test_a_row_of_ones_in_a_fourier_transform_keeps_its_products_in_range(n: int) -> None:
    source = _transform(n)
    with pytest.warns(amp.AmpWarning, match="likely to reach"):
        result = amp.rewrite(source)
    assert result.report.summary.compute_converted > 0.4
    x = np.random.default_rng(0).random((1, 1, n, n)).astype(np.float32)
    assert error(source, result, {"x": x}) < 1
