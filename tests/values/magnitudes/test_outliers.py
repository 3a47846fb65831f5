"""The few channels of a value that weights make far larger than its others."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.magnitudes.estimate import LargeChannels, outliers_of_rows
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.magnitudes.outliers import Outliers

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
K, N = 32, 16
RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(0, K**-0.5, (K, N)).astype(np.float32)
WEIGHT[:, 5] *= 200
BIAS = RNG.normal(size=N).astype(np.float32)
BIAS[3] = 3e4
CONSTANTS = {"w": WEIGHT, "wt": WEIGHT.T.copy(), "b": BIAS, "two": np.float32(2)}


def sweep(text: str, **constants: np.ndarray) -> tuple[Outliers, dict[str, int]]:
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    for name, array in {**CONSTANTS, **constants}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    graph = build_type_graph(read_flat(model))
    intervals = intervals_of(graph)
    names = {name: v for v, name in enumerate(graph.flat.value_names) if name}
    return Outliers(graph, intervals, Estimates(graph, intervals), 65520.0), names


def large(body: str, given: str = "float[4,32] x", **constants: np.ndarray) -> LargeChannels | None:
    """Return the outliers of y."""
    found, names = sweep(f"g ({given}) => (float[4,16] y) {{ {body} }}", **constants)
    return found[names["y"]]


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(x, w)",
        "v = Identity(w) y = MatMul(x, v)",
        "v = Transpose<perm = [1,0]>(wt) y = MatMul(x, v)",
        "y = Gemm(x, w)",
        "y = Gemm<transB = 1>(x, wt)",
        "p = MatMul(x, w) y = LeakyRelu(p)",
    ],
)
def test_a_large_column_makes_a_large_channel(body: str) -> None:
    found = large(body)
    x = np.random.default_rng(1).normal(size=(1000, K))
    reached = np.abs(x @ WEIGHT)[:, 5].max()
    assert found is not None
    assert list(found.channels) == [5]
    assert 0.5 * reached < found.peak < 4 * reached


@pytest.mark.parametrize(
    ("body", "factor"),
    [
        ("y = Add(p, p)", 2),
        ("y = Sum(p, two)", 1),
        ("y = Sub(two, p)", 1),
        ("y = Mul(p, two)", 2),
        ("y = Mul(two, p)", 2),
        ("y = Div(p, two)", 0.5),
        ("y = Neg(p)", 1),
        ("y = Abs(p)", 1),
        ("y = Max(two, p)", 1),
        ("y = Where(c, two, p)", 1),
        ("h = com.microsoft.BiasAdd(p, two, two) y = com.microsoft.Gelu(h)", 1),
        ("y = com.microsoft.BiasGelu(p, two)", 1),
        ("h = MatMul(p, square) y = Identity(h)", 3),
    ],
)
def test_what_becomes_of_a_large_channel(body: str, factor: float) -> None:
    given = "float[4,32] x, bool[4,16] c"
    once = large("y = MatMul(x, w)")
    found = large(f"p = MatMul(x, w) {body}", given, square=np.eye(N, dtype=np.float32) * 3)
    assert once is not None
    assert found is not None
    assert found.length == N
    assert 5 in found.channels
    assert found.channels[5].peak == pytest.approx(factor * once.channels[5].peak, rel=0.05)


def test_a_weight_tells_how_many_terms_a_product_has() -> None:
    assert large("y = MatMul(x, w)", "float[A,B] x") == large("y = MatMul(x, w)")


@pytest.mark.parametrize(("axis", "stays"), [(0, True), (-2, True), (1, False), (-1, False)])
def test_channels_stay_what_they_are_along_other_axes_alone(axis: int, stays: bool) -> None:
    shape, length = ("8,16", 4) if stays else ("4,32", 16)
    found, names = sweep(
        f"g (float[4,32] x, int64[{length}] i) => (float[4,16] y) "
        f"<float[4,16] p, float[{shape}] h> {{ p = MatMul(x, w) "
        f"h = Concat<axis = {axis}>(p, p) y = Gather<axis = {axis}>(p, i) }}"
    )
    kept = found[names["p"]] if stays else None
    assert found[names["p"]] is not None
    assert found[names["h"]] == kept
    assert found[names["y"]] == kept


@pytest.mark.parametrize("square", ["y = Mul(r, r)", "y = Pow(r, two)"])
def test_the_square_of_a_channel_has_the_square_of_its_peak(square: str) -> None:
    body = "p = MatMul(x, w) r = Relu(p)"
    once, squared = large(f"{body} y = Identity(r)"), large(f"{body} {square}")
    assert once is not None
    assert squared is not None
    assert squared.peak == pytest.approx(once.peak**2)


def test_what_is_added_to_one_channel_adds_up() -> None:
    text = "float[4,16] x"
    adds = " ".join(f"r{k + 1} = Add(r{k}, b)" for k in range(3))
    found = large(f"r0 = Identity(x) {adds} y = Identity(r3)", text)
    assert found is not None
    assert found.peak == pytest.approx(9e4, rel=0.01)


def test_a_norm_takes_outliers_away() -> None:
    scale = np.ones(N, np.float32)
    body = "r = Add(x, b) y = LayerNormalization(r, one)"
    assert large(body, "float[4,16] x", one=scale) is None


@pytest.mark.parametrize(
    "body",
    [
        "y = LayerNormalization(x, b)",
        "y = com.microsoft.SkipLayerNormalization(x, x, b)",
        "y = com.microsoft.SkipSimplifiedLayerNormalization(x, x, b)",
    ],
)
def test_a_norm_has_the_outliers_of_its_scale(body: str) -> None:
    found = large(body, "float[4,16] x")
    assert found is not None
    assert list(found.channels) == [3]
    assert found.peak == pytest.approx(15**0.5 * 3e4, rel=0.6)


def test_the_sum_inside_a_skip_norm_has_the_outliers_of_its_terms() -> None:
    body = (
        "p = Add(x, b) "
        "y, m, i, s = com.microsoft.SkipSimplifiedLayerNormalization(p, x, one) t = Add(s, b)"
    )
    text = f"g (float[1,4,16] x) => (float[1,4,16] y, float[1,4,16] t) {{ {body} }}"
    found, names = sweep(text, one=np.ones(N, np.float32))
    assert found.peak(names["t"]) == pytest.approx(6e4, rel=0.01)
    assert found[names["y"]] is None


def test_rows_of_a_table_and_states_of_a_loop_have_its_channels() -> None:
    table = RNG.normal(size=(100, N)).astype(np.float32)
    table[:, 7] = 1000
    found = large("y = Gather(t, x)", "int64[4] x", t=table)
    assert found is not None
    assert found.peak == pytest.approx(1000, rel=0.01)
    body = (
        "y = Loop(n, , x) <body = body (int64 i, bool c, float[4,16] s) => (bool d, float[4,16] e)"
        " { d = Identity(c) e = Add(s, b) }>"
    )
    assert large(body, "int64 n, float[4,16] x") is not None


@pytest.mark.parametrize("mask", [-65536.0, -np.inf])
def test_a_mask_is_no_outlier(mask: float) -> None:
    hidden = np.zeros(N, np.float32)
    hidden[-1] = mask
    assert large("y = Add(x, m)", "float[4,16] x", m=hidden) is None


def test_weights_of_one_size_have_none() -> None:
    assert outliers_of_rows(RNG.normal(size=(64, 4096))) is None
    assert outliers_of_rows(RNG.normal(size=(1, 768))) is None
    assert outliers_of_rows(np.array([[1.0, 1.0, 1e3]])) is None, "too few channels for a rule"


def test_partial_sums_count_what_cancels() -> None:
    """20,000 times 8, minus the same: the result is small."""
    two, weight = np.zeros(N, np.float32), RNG.normal(size=(N, N)).astype(np.float32)
    two[[3, 9]], weight[3], weight[9] = 2e4, 8, -8
    text = "g (float[4,16] x) => (float[4,16] y) { h = Add(x, c) y = MatMul(h, v) }"
    found, names = sweep(text, c=two, v=weight)
    assert found.partial_sum(names["h"], names["v"]) == pytest.approx(3.2e5, rel=0.01)
    assert found.partial_sum(names["x"], names["v"]) == 0
    assert found.peak(names["y"]) < 1e3


def test_of_a_long_weight_some_rows_are_looked_at() -> None:
    weight = RNG.normal(0, 0.02, (2048, 512)).astype(np.float32)
    weight[:, 77] *= 50
    model_text = "g (float[4,2048] x) => (float[4,512] y) { y = MatMul(x, long) }"
    found, names = sweep(model_text, long=weight)
    held = found[names["y"]]
    assert held is not None
    assert list(held.channels) == [77]


CHANNELS = np.ones(N, np.float32)
CHANNELS[4] = 500


def of_constant(array: np.ndarray) -> LargeChannels | None:
    """Return the outliers of a constant."""
    text = f"g (float[1,{array.shape[-1]}] x) => (float[a,c] y) {{ y = Add(x, k) }}"
    found, names = sweep(text, k=array.astype(np.float32))
    return found[names["k"]]


def test_a_constant_of_long_rows_is_read_in_some_of_them() -> None:
    rows = np.ones((20, 16384), np.float32)
    rows[:, 77] = np.arange(1000, 1020)
    found = of_constant(rows)
    assert found is not None
    assert found.channels[77].peak == 1019
    assert found.channels[77].mean == pytest.approx(np.mean([0, 2, 5, 8, 10, 13, 16, 19]) + 1000)


def test_the_outliers_of_a_sum_of_values_add_up() -> None:
    body = (
        "p = Add(x, k) q = Add(x, k) r = Add(x, b) w1 = Cast<to = 1>(i) u = Sub(x, k) "
        "l = Add(z, long) y = Sum(p, q, r, u)"
    )
    given = "float[4,16] x, int64[4,16] i, float[4,20] z"
    long = np.ones(20, np.float32)
    long[2] = 900
    found, names = sweep(
        f"g ({given}) => (float[4,16] y) {{ {body} }}", k=CHANNELS, long=long
    )  # fmt: skip

    def total(*terms: str) -> float:
        return found.total_peak([names[name] for name in terms])

    assert total("x") == total("w1") == total() == 0
    assert total("p") == found.peak(names["p"]) == pytest.approx(506)
    assert total("p", "q") == pytest.approx(1000 + 72**0.5)
    assert total("p", "w1") == pytest.approx(506)
    assert total("p", "x") == pytest.approx(500 + 72**0.5)
    assert total("p", "l") == 0
    assert found.peak(names["l"]) == pytest.approx(906)
    assert found.peak(names["x"]) == 0


def test_partial_sums_add_up_the_peaks_of_all_outliers_of_a_value() -> None:
    weight = np.zeros((N, N), np.float32)
    weight[4, 2], weight[3, 2], weight[4, 1] = -2, 3, 1
    text = "g (float[4,16] x, float[16,16] m) => (float[4,16] y) { h = Add(x, k) y = MatMul(h, v) }"
    both = CHANNELS.copy()
    both[3] = 400
    found, names = sweep(text, k=both, v=weight)
    assert found.partial_sum(names["h"], names["v"]) == pytest.approx(2 * 506 + 3 * 406)
    assert found.partial_sum(names["h"], names["m"]) == 0


def test_a_branch_that_makes_a_larger_channel_tells_it() -> None:
    def found(then: str, other: str) -> LargeChannels | None:
        body = (
            f"y = If(c) <then_branch = t () => (float[4,16] p) {{ {then} }}, "
            f"else_branch = e () => (float[4,16] q) {{ {other} }}>"
        )
        return large(body, "bool c, float[4,16] x", k=CHANNELS, j=CHANNELS * 2)

    for one, other in (("k", "j"), ("j", "k")):
        both = found(f"p = Add(x, {one})", f"q = Add(x, {other})")
        assert both is not None
        assert both.channels[4].peak == pytest.approx(1006)
    one = found("p = Add(x, k)", "q = Neg(x)")
    assert one is not None
    assert one.channels[4].peak == pytest.approx(506)
    one = found("t = Sin(x) p = Add(t, k)", "q = Neg(x)")
    assert one is not None
    two = found("p = Add(x, k)", "q = Add(x, b)")
    assert two is not None
    assert set(two.channels) == {3, 4}
    assert found("p = Neg(x)", "q = Neg(x)") is None


def test_outliers_are_not_beyond_what_is_certain() -> None:
    limits = {"low": np.array(-300, np.float32), "high": np.array(200, np.float32)}
    found = large("h = Add(x, k) y = Clip(h, low, high)", "float[4,16] x", k=CHANNELS, **limits)
    assert found is not None
    assert found.peak == pytest.approx(300, rel=1e-5)
    assert found.channels[4].mean == 500
    assert found.length == N


def test_a_matrix_is_a_constant_that_is_not_too_long() -> None:
    text = "g (float[4,16] x) => (float[4,16] y) { h = Neg(x) y = Mul(h, k) z = Add(h, e) }"
    found, names = sweep(text, k=WEIGHT, e=np.zeros((0, 16), np.float32))
    matrix = found.matrix(names["k"])
    assert matrix is not None
    np.testing.assert_array_equal(matrix, WEIGHT)
    assert found.matrix(names["x"]) is None
    assert found.matrix(names["h"]) is None
    assert found.matrix(names["e"]) is None
    rows = found.rows(names["k"], [31, 0, 7])
    assert rows is not None
    np.testing.assert_array_equal(rows, WEIGHT[[31, 0, 7]])
    assert found.rows(names["k"], [32]) is None
    assert found.rows(names["x"], [0]) is None
    assert found.rows(names["b"], [0]) is None
