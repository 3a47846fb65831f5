"""Sums of a target that adds in float16: predicted in numpy, and on the target itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest
from accumulating_graphs import GRAPHS, HEADER, SUMS, feeds_of

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.kernels.accumulation import SumOrder
from amp_rewrite.numerics.emulate.low_sums import kept_low

Array = np.ndarray[Any, Any]


def in_order(terms: Array, chunk: int = 1) -> Array:
    """Add float16 terms along the last axis, chunk by chunk."""
    total = np.zeros(terms.shape[:-1], np.float16)
    for start in range(0, terms.shape[-1], chunk):
        part = np.zeros_like(total)
        for term in np.moveaxis(terms[..., start : start + chunk], -1, 0):
            part = part + term
        total = total + part
    return total


def product(x: Array, w: Array) -> Array:
    return in_order(x[:, None] * w.T[None])


def gemm(x: Array, w: Array, b: Array) -> Array:
    return in_order(x[:, None] * w[None], 4) * np.float16(0.3) + b


def conv(x: Array, w: Array, b: Array) -> Array:
    """Return a convolution with padding 1 and stride 2, channels innermost."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.empty((2, 8, 5, 5), np.float16)
    taps = w.transpose(0, 2, 3, 1).reshape(8, -1)
    for i in range(5):
        for j in range(5):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            terms = window.transpose(0, 2, 3, 1).reshape(2, 1, -1) * taps
            y[:, :, i, j] = in_order(terms) + b
    return y


def batch_norm(x: Array, s: Array, b: Array, m: Array) -> Array:
    scale, bias, centre, var = (a[:, None, None] for a in (s, b, m, s * s))
    over = np.float16(1) / np.sqrt(var + np.float16(1e-5))
    return (x - centre) * over * scale + bias


def leaky_relu(x: Array) -> Array:
    return np.where(x < 0, x * np.float16(0.3), x)


def mean(x: Array) -> Array:
    total = in_order(x.reshape(2, 16, -1))
    return (total.astype(np.float32) / 49).astype(np.float16).reshape(2, 16, 1, 1)


def mean_of_windows(x: Array) -> Array:
    """Return means of windows of 3 x 2 with stride 2; the rows of the padding do not count."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    y = np.empty((2, 5, 5, 4), np.float16)
    for i in range(5):
        count = np.float32(2 * (3 - (i in (0, 4))))
        for j in range(4):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
            y[:, :, i, j] = in_order(window.reshape(2, 5, -1)).astype(np.float32) / count
    return y


ARM_SUMS = kept_low(targets.find("cpu-arm64"), FLOAT16)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a product", product),
        ("a Gemm by four", gemm),
        ("a Conv", conv),
        ("a mean", mean),
        ("a mean of windows", mean_of_windows),
        ("a batch normalization", batch_norm),
        ("a leaky relu", leaky_relu),
    ],
)
def test_every_product_and_every_sum_is_rounded(name: str, expected: Callable[..., Array]) -> None:
    model = onnx.parser.parse_model(f"{HEADER} {GRAPHS[name]}")
    feeds = feeds_of(model)
    found = amp.evaluate(model, feeds, accumulate_low=SUMS)["y"]
    np.testing.assert_array_equal(found, expected(*feeds.values()))


def test_what_a_target_keeps_low_is_what_was_measured() -> None:
    assert SUMS["Gemm"] == (SumOrder(FLOAT16, 4, when=(("transB", 1),)), SumOrder(FLOAT16))
    assert kept_low(targets.find("webgpu"), BFLOAT16) == {}
    assert kept_low(targets.find("cuda"), FLOAT16) == {}


def test_a_conv_whose_window_is_not_known_adds_in_float32() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float16[1,64,3,3] x, float16[O,64,K,K] w) => (float16[1,O,P,Q] y)"
        "{ y = Conv(x, w) }"
    )
    ones = {name: np.ones((1, 64, 3, 3), np.float16) for name in "xw"}
    assert amp.evaluate(model, ones, accumulate_low=SUMS)["y"] == 576


@pytest.mark.webgpu
@pytest.mark.parametrize("name", GRAPHS)
def test_webgpu_computes_what_was_predicted_bit_for_bit(name: str, webgpu: str) -> None:
    model = onnx.parser.parse_model(f"{HEADER} {GRAPHS[name]}")
    feeds = feeds_of(model)
    found = amp.Evaluator(model, emulate=False, providers=[webgpu]).run(feeds)["y"]
    predicted = amp.evaluate(model, feeds, accumulate_low=SUMS)["y"]
    np.testing.assert_array_equal(found, predicted)
    assert not np.array_equal(amp.evaluate(model, feeds)["y"], found), "the order does not matter"


def fused(x: Array, w: Array, begin: Array | float = 0) -> Array:
    """Add products (M, K) x (K, N) one by one, each in one instruction that rounds once."""
    total = np.zeros((x.shape[0], w.shape[1]), np.float16) + np.asarray(begin, np.float16)
    for k in range(x.shape[1]):
        product = x[:, k, None].astype(np.float64) * w[k].astype(np.float64)
        total = (total + product).astype(np.float16)
    return total


def test_a_fused_product_is_not_rounded_before_it_is_added() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float16[8,100] x, float16[100,16] w) => (float16[8,16] y)"
        "{ y = MatMul(x, w) }"
    )
    feeds = feeds_of(model)
    found = amp.evaluate(model, feeds, accumulate_low=ARM_SUMS)["y"]
    np.testing.assert_array_equal(found, fused(*feeds.values()))
    assert not np.array_equal(found, amp.evaluate(model, feeds, accumulate_low=SUMS)["y"])


def test_a_fused_sum_is_rounded_once() -> None:
    model = onnx.parser.parse_model(
        f"{HEADER} g (float16[1,2] x, float16[2,1] w) => (float16[1,1] y) {{ y = MatMul(x, w) }}"
    )
    unit = 2.0**-10
    x = np.array([[1 + unit, 1 + unit]], np.float16)
    w = np.array([[1], [(1 - unit) / 2048]], np.float16)
    # The sum is 2^-31 below the middle of two numbers, where float32 has no number.
    found = amp.evaluate(model, {"x": x, "w": w}, accumulate_low=ARM_SUMS)["y"]
    assert float(found[0, 0]) == 1 + unit
    large = {"x": np.full((1, 2), 60000, np.float16), "w": np.array([[1], [1]], np.float16)}
    assert np.isposinf(amp.evaluate(model, large, accumulate_low=ARM_SUMS)["y"]).all()
    none = {"x": np.zeros((1, 2), np.float16), "w": np.zeros((2, 1), np.float16)}
    assert amp.evaluate(model, none, accumulate_low=ARM_SUMS)["y"] == 0


def test_a_fused_sum_of_edges_is_rounded_as_doubles_are() -> None:
    bits = np.arange(0, 0x7C00, 37, dtype=np.uint16)  # subnormals to the largest numbers
    begins = bits.view(np.float16)
    rng = np.random.default_rng(0)
    factors = rng.permutation(begins)
    factors[::3] = 2.0**-12  # the middle of two numbers behind a power of two, and around it
    begins[::3] = np.float16(2.0) ** rng.integers(-14, 15, begins[::3].size)
    unit = 2.0**-10
    for x in (1.0, -1.0, 1 + unit, 1 - unit / 2, 2.0**-24):
        rows = np.array([[1, x]], np.float16)
        columns = np.stack([begins, factors])
        model = onnx.parser.parse_model(
            f"{HEADER} g (float16[1,2] x, float16[2,{begins.size}] w) => "
            f"(float16[1,{begins.size}] y) {{ y = MatMul(x, w) }}"
        )
        found = amp.evaluate(model, {"x": rows, "w": columns}, accumulate_low=ARM_SUMS)["y"]
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, fused(rows, columns))


@pytest.mark.parametrize("sums", [SUMS, ARM_SUMS], ids=["webgpu", "arm"])
@pytest.mark.parametrize("shape", [(48,), (48, 9)])
def test_a_matrix_or_vector_of_a_rank_that_is_not_recorded(shape: tuple[int, ...], sums: Any):
    model = onnx.parser.parse_model(
        f"{HEADER} g (float16[5,48] x, float16[N] v, int64[R] s) => (float16[5] y)"
        "{ w = Reshape(v, s) y = MatMul(x, w) }"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 48)), rng.normal(size=shape)
    x, w = x.astype(np.float16), w.astype(np.float16)
    feeds = {"x": x, "v": w.reshape(-1), "s": np.array(shape, np.int64)}
    found = amp.evaluate(model, feeds, accumulate_low=sums)["y"]
    matrix = w.reshape(48, -1)
    expected = fused(x, matrix) if sums is ARM_SUMS else product(x, matrix)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert found.shape == (5, *shape[1:])


BIASES = np.linspace(-7, 9, 16).astype(np.float16)


def constant(name: str, shape: str, numbers: Array) -> str:
    bits = ",".join(str(int(each)) for each in numbers.view(np.uint16))
    return f"{name} = Constant <value = float16[{shape}] {{{bits}}}> ()"


ROW = constant("b", "16", BIASES)
BEGUN = {
    "MatMul": f"{ROW} p = MatMul(x, w) y = Add(p, b)",
    "MatMul, bias first": f"{constant('b', '1,16', BIASES)} p = MatMul(x, w) y = Add(b, p)",
    "MatMul of a rank that is not recorded": f"{ROW} t = Transpose(x) u = Transpose(t) "
    "p = MatMul(u, w) y = Add(p, b)",
    "Gemm": f"{ROW} y = Gemm(x, w, b)",
}
"""Products whose sums begin with a bias."""

APART = {
    "a column": f"{constant('c', '4,1', BIASES[:4])} p = MatMul(x, w) y = Add(p, c)",
    "a product that is read twice": f"{ROW} p = MatMul(x, w) q = Add(p, b) y = Max(p, q)",
    "a Gemm of a scaled bias": f"{ROW} y = Gemm<beta = 2.0>(x, w, b)",
    "a transposed Gemm": f"{ROW} y = Gemm<transB = 1>(x, v, b)",
    "a scaled Gemm": f"{ROW} y = Gemm<alpha = 0.3, beta = 0.7>(x, w, b)",
}
"""Products whose bias is added at the end."""

KERNEL = constant("k", "16,24,1", np.random.default_rng(1).normal(size=384).astype(np.float16))
CONVS = {
    "channels": f"{KERNEL} {constant('b', '1,16,1', BIASES)} p = Conv(d, k) y = Add(p, b)",
    "channels without the batch": f"{KERNEL} {constant('b', '16,1', BIASES)} p = Conv(d, k) "
    "y = Add(p, b)",
    "channels first": f"{KERNEL} {constant('b', '16,1', BIASES)} p = Conv(d, k) y = Add(b, p)",
    "channels of a computed weight": f"{constant('b', '1,16,1', BIASES)} p = Conv(d, h) "
    "y = Add(p, b)",
    "channels, reshaped": f"{KERNEL} {ROW} s = Constant <value = int64[3] {{1, -1, 1}}> () "
    "r = Reshape(b, s) p = Conv(d, k) y = Add(p, r)",
    "a bias already": f"{KERNEL} {ROW} y = Conv(d, k, b)",
    "places": f"{KERNEL} {constant('b', '1,1,4', BIASES[:4])} p = Conv(d, k) y = Add(p, b)",
}


def on_arm(nodes: str) -> tuple[Any, dict[str, Array]]:
    """Return a model of those of its inputs that it reads, with numbers for them."""
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 64), "w": (64, 16), "v": (16, 64), "d": (1, 24, 4), "h": (16, 24, 1)}
    read = {name: shape for name, shape in shapes.items() if re.search(rf"[( ]{name}[,)]", nodes)}
    made = ", ".join(f"float16[{','.join(map(str, shape))}] {n}" for n, shape in read.items())
    model = onnx.parser.parse_model(f"{HEADER} g ({made}) => (float16[] y) {{ {nodes} }}")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model, {name: rng.normal(size=shape).astype(np.float16) for name, shape in read.items()}


@pytest.mark.parametrize("name", BEGUN)
def test_a_sum_begins_with_a_constant_bias(name: str) -> None:
    model, feeds = on_arm(BEGUN[name])
    found = amp.evaluate(model, feeds, accumulate_low=ARM_SUMS)["y"]
    np.testing.assert_array_equal(found, fused(feeds["x"], feeds["w"], BIASES))


@pytest.mark.parametrize("name", ["a column", "a transposed Gemm"])
def test_other_biases_are_added_at_the_end(name: str) -> None:
    model, feeds = on_arm(APART[name])
    found = amp.evaluate(model, feeds, accumulate_low=ARM_SUMS)["y"]
    bias = BIASES[:4, None] if name == "a column" else BIASES
    w = feeds["v"].T if "v" in feeds else feeds["w"]
    np.testing.assert_array_equal(found, fused(feeds["x"], w) + bias)


ALL = {**BEGUN, **APART, **CONVS}


@pytest.mark.arm64
@pytest.mark.parametrize("name", ALL)
def test_arm_adds_biases_where_it_was_predicted(name: str, arm64: Any) -> None:
    model, feeds = on_arm(ALL[name])
    found = arm64(model).run(feeds)["y"]
    predicted = amp.evaluate(model, feeds, accumulate_low=ARM_SUMS)["y"]
    np.testing.assert_array_equal(found, predicted)


ON_ARM = (
    *("a product", "stacked products", "a Gemm one by one", "a Conv", "a depthwise Conv"),
    *("a dilated Conv in groups", "a Conv of one axis", "a Conv of a computed weight"),
    *("a leaky relu", "a mean", "a mean of windows", "a mean of windows with their padding"),
)


@pytest.mark.arm64
@pytest.mark.parametrize("name", ON_ARM)
def test_arm_computes_what_was_predicted(name: str, arm64: Any) -> None:
    header = HEADER.replace('"" : 20', '"" : 17')  # the last one whose AveragePool loads there
    model = onnx.parser.parse_model(f"{header} {GRAPHS[name]}")
    feeds = feeds_of(model)
    found = arm64(model).run(feeds)["y"]
    predicted = amp.evaluate(model, feeds, accumulate_low=ARM_SUMS)["y"]
    if name == "a Gemm one by one":  # the last of an odd number of columns, in another order
        found, predicted = found[:, :-1], predicted[:, :-1]
    np.testing.assert_array_equal(found, predicted)
