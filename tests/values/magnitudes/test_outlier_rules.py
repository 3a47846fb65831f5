"""What operators make of channels that are far larger than the others of a value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from magnitude_models import graph_of, outliers_of

from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import DOUBT, Channel, Estimate, LargeChannels

LENGTH = 16
LARGE, OTHER, SCALE = (np.ones(LENGTH, np.float32) for _ in range(3))
LARGE[3], OTHER[9], SCALE[3] = 100, -50, 20
CONSTANTS = {
    "b": LARGE, "o": OTHER, "s": SCALE, "one": np.ones(LENGTH, np.float32),
    "two": 2.0, "three": 3.0, "half": 0.5, "eight": 8.0, "nine": 9.0, "zero": 0.0, "minus": -1.0,
    "big": 1000.0,
}  # fmt: skip
INPUTS = "float[2,4,16] n, float[2,4,16] m, int64[2,4,16] i, bool[2,4,16] c"
N = Channel(0.0, 1.0, 6.0)
B, OF_O, S = Channel(100.0, 0.0, 100.0), Channel(-50.0, 0.0, 50.0), Channel(20.0, 0.0, 20.0)
H = Channel(100.0, 1.0, 106.0)
"""Of n + b, the third channel."""


def found(
    body: str, inputs: str = INPUTS, value: str = "y", /, **arrays: np.ndarray | float
) -> LargeChannels | None:
    """Return the outliers of a value; h is n + b, and nothing is known of u."""
    front = "h = Add(n, b) u = Cast<to = 1>(i)" if inputs == INPUTS else ""
    graph = graph_of(f"{front} {body}", inputs, **{**CONSTANTS, **arrays})
    return outliers_of(graph)[graph.flat.value_names.index(value)]


def channels(
    body: str, inputs: str = INPUTS, /, **arrays: np.ndarray | float
) -> dict[int, Channel]:
    """Return the outliers of y by their numbers."""
    large = found(body, inputs, **arrays)
    return {} if large is None else dict(large.channels)


def near(expected: dict[int, Channel]) -> dict[int, object]:
    return {number: pytest.approx(channel, rel=1e-5) for number, channel in expected.items()}


def divided(a: Channel, by: float) -> Channel:
    return Channel(a.mean / by, a.spread / by, a.peak / by)


def power(a: Channel, exponent: float) -> Channel:
    size = a.size**exponent
    return Channel(size / 2, size / 2, a.peak**exponent)


def square(a: Channel) -> Channel:
    estimate = e.squared(a.estimate)
    return Channel(estimate.mean, estimate.spread, a.peak**2)


NEGATED = Channel(-100.0, 1.0, 106.0)
RELU = H.estimate.rectified()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity(h)", H),
        ("y = Cast<to = 1>(h)", H),
        ("y = Clip(h, minus)", H),
        ("y = Add(h, h)", Channel(200.0, 2.0, 212.0)),
        ("y = Add(h, m)", H.plus(N)),
        ("y = Add(m, h)", H.plus(N)),
        ("y = Add(h, u)", H),
        ("y = Add(u, h)", H),
        ("y = Sub(h, m)", H.plus(N)),
        ("y = Sub(m, h)", NEGATED.plus(N)),
        ("y = Sub(u, h)", NEGATED),
        ("y = Sub(h, u)", H),
        ("y = Sub(h, two)", H.plus(Channel(-2.0, 0.0, 2.0))),
        ("y = Mul(h, h)", square(H)),
        ("y = Mul(h, m)", H.times(N)),
        ("y = Mul(m, h)", H.times(N)),
        ("y = Mul(h, u)", None),
        ("y = Div(h, two)", divided(H, 2)),
        ("y = Div(h, m)", H),
        ("y = Div(h, s)", divided(H, 20)),
        ("y = Div(two, h)", divided(Channel(2.0, 0.0, 2.0), H.size)),
        ("y = Div(h, zero)", None),
        ("y = Div(h, u)", None),
        ("y = Pow(h, two)", square(H)),
        ("y = Pow(h, three)", power(H, 3)),
        ("y = Pow(h, half)", power(H, 0.5)),
        ("y = Pow(h, eight)", power(H, 8)),
        ("y = Pow(h, nine)", None),
        ("y = Pow(h, zero)", None),
        ("y = Pow(h, minus)", None),
        ("y = Pow(h, m)", None),
        ("y = Relu(h)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = Gelu(h)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = Sqrt(h)", Channel(H.size**0.5, H.size**0.5 / 2, 106**0.5)),
        ("y = Neg(h)", NEGATED),
        ("g = Neg(h) y = Abs(g)", Channel(H.size, 1.0, 106.0)),
        ("y = Max(h, m)", H),
        ("y = Min(m, h)", H),
        ("y = Mean(h, u, m)", H),
        ("y = Max(h, big)", Channel(1000.0, 0.0, 1000.0)),
        ("y = Where(c, h, m)", H),
        ("y = Where(c, m, h)", H),
        ("y = Where(c, u, h)", H),
        ("y = Where(c, h, u)", H),
        ("y = Tanh(h)", None),
        ("y = Softmax(h)", None),
        ("y = Add(m, one)", None),
        ("y = com.microsoft.BiasAdd(m, b, h)", H.plus(N).plus(B)),
        ("y = com.microsoft.Gelu(h)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = com.microsoft.QuickGelu(h)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = com.microsoft.FastGelu(h)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = com.microsoft.FastGelu(m, b)", Channel(RELU.mean, RELU.spread, 106.0)),
        ("y = com.microsoft.BiasGelu(u, b)", B),
    ],
)
def test_a_channel_is_computed_of_that_of_the_inputs(body: str, expected: Channel | None) -> None:
    assert channels(body) == near({} if expected is None else {3: expected})


def test_a_product_with_a_vector_is_no_larger_than_numbers_are() -> None:
    graph = graph_of("h = Add(n, b) y = MatMul(h, o)", "float[4,16] n", b=LARGE, o=OTHER)
    assert outliers_of(graph).peak(graph.flat.value_names.index("y")) < 1e5


W = np.ones((8, LENGTH), np.float32)
W[:, 3] = (20, -20, 30, -30, 20, -20, 30, 30)
X = Estimate(2.0, 1.0)


def product(typical: Estimate, column: Channel, terms: int) -> Channel:
    mean = terms * typical.mean * column.mean
    return Channel.of(mean, math.sqrt(terms) * typical.size * column.size / DOUBT)


def of_x(body: str, inputs: str = "float[4,8] n", **arrays: np.ndarray | float) -> LargeChannels:
    """Return the outliers of y, where x has mean 2 and deviation 1."""
    held = {**CONSTANTS, "w": W, "wt": W.T.copy(), **arrays}
    graph = graph_of(f"x = Add(n, two) {body}", inputs, **held)
    large = outliers_of(graph)[graph.flat.value_names.index("y")]
    assert large is not None
    return large


V = (np.arange(1, 16 * 16 + 1, dtype=np.float32).reshape(16, 16) % 7 - 3) / 4
V[3, 5] = 5


@pytest.mark.parametrize(
    ("bits", "factor"), [("", 3.2), ("bits: int = 8, ", 51.2), ("bits: int = 2, ", 0.8)]
)
def test_scales_of_blocks_show_the_outliers_of_quantised_weights(bits: str, factor: float) -> None:
    scales = np.ones((16, 2), np.float32)
    scales[3] = (20, 40)
    sizes = f"{bits}K: int = 32, N: int = 16, block_size: int = 16"
    packed = np.zeros((16, 2, 8), np.uint8)
    found = of_x(
        f"y = com.microsoft.MatMulNBits<{sizes}>(x, q, k)",
        "float[4,32] n",
        q=packed,
        k=scales.reshape(-1),
    )
    column = Channel(30 * factor, 10 * factor, 40 * factor)
    assert found.length == LENGTH
    assert found.channels == near({3: product(X, column, 32)})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = LayerNormalization(m, s)", {3: Channel.of(0.0, 20.0)}),
        ("y = LayerNormalization(m, s, one)",
         {3: Channel.of(0.0, 20.0).plus(Channel(1.0, 0.0, 1.0))}),
        ("y = LayerNormalization(m, s, b)", {3: Channel.of(0.0, 20.0).plus(B)}),
        ("y = LayerNormalization(m, one, o)", {9: Channel.of(0.0, 1.0).plus(OF_O)}),
        ("y = LayerNormalization(h, one)", {}),
        ("y = RMSNormalization(h, s)", {3: Channel.of(0.0, 20.0)}),
        ("y = com.microsoft.SkipLayerNormalization(m, h, s, b)",
         {3: Channel.of(0.0, 20.0).plus(B)}),
        ("y = com.microsoft.SkipLayerNormalization(h, m, s)", {3: Channel.of(0.0, 20.0)}),
        ("y = com.microsoft.SkipSimplifiedLayerNormalization(m, m, s, b)",
         {3: Channel.of(0.0, 20.0)}),
    ],
)  # fmt: skip
def test_a_norm_is_its_scale_and_its_bias(body: str, expected: dict[int, Channel]) -> None:
    got = channels(body)
    assert got.keys() == expected.keys()
    for number, channel in expected.items():
        assert got[number][:2] == pytest.approx(channel[:2], rel=1e-5)
        assert got[number].peak <= channel.peak * (1 + 1e-5)
