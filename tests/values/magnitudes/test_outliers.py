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
from amp_rewrite.values.magnitudes.estimate import LargeChannels
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


def test_partial_sums_count_what_cancels() -> None:
    """20,000 times 8, minus the same: the result is small."""
    two, weight = np.zeros(N, np.float32), RNG.normal(size=(N, N)).astype(np.float32)
    two[[3, 9]], weight[3], weight[9] = 2e4, 8, -8
    text = "g (float[4,16] x) => (float[4,16] y) { h = Add(x, c) y = MatMul(h, v) }"
    found, names = sweep(text, c=two, v=weight)
    assert found.partial_sum(names["h"], names["v"]) == pytest.approx(3.2e5, rel=0.01)
    assert found.partial_sum(names["x"], names["v"]) == 0
    assert found.peak(names["y"]) < 1e3


CHANNELS = np.ones(N, np.float32)
CHANNELS[4] = 500


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
