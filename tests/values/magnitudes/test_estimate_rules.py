"""What operators make of means and deviations, by the formulas of independent numbers."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from magnitude_models import estimate_of, graph_of
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.magnitudes import estimate as e
from amp_rewrite.values.magnitudes.estimate import DOUBT, Estimate, WeightRows
from amp_rewrite.values.magnitudes.estimates import Estimates

RANGES = {"x": (0.0, 2.0), "z": (-1.0, 5.0)}
X, Z = Estimate(1.0, 3**-0.5), Estimate(2.0, 3**0.5)
N = Estimate(0.0, 1.0, 1.0)
INPUTS = "float[2,4] x, float[2,4] z, float[2,4] n, float[2,4] m, int64[2,4] i, bool[2,4] b"
W = np.array([[1, 2, 3], [4, 5, 6], [-7, 8, 9], [1, 1, 20]], np.float32)
BIAS = np.array([1, 2, 6], np.float32)
NUMBERS = {
    "two": 2.0, "three": 3.0, "half": 0.5, "zero": 0.0, "minus": -1.0,
    "w": W, "wt": np.ascontiguousarray(W.T), "c": BIAS,
}  # fmt: skip
C = Estimate(3.0, float(BIAS.std()))
ROWS = WeightRows.of(W.T)


def found(body: str, inputs: str = INPUTS, **arrays: np.ndarray | float) -> Estimate | None:
    """Return the estimate of y, which is computed of x from 0 to 2 and others."""
    ranges = {name: ends for name, ends in RANGES.items() if f" {name}" in inputs}
    text = f"u = Cast<to = 1>(i) {body}" if inputs == INPUTS else body
    return estimate_of(graph_of(text, inputs, **{**NUMBERS, **arrays}), ranges)


def computed(a: Estimate, b: Estimate, terms: int) -> Estimate:
    term = e.multiply(a, b)
    return Estimate(terms * term.mean, math.sqrt(terms) * term.spread / DOUBT, term.degree)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Div(n, two)", Estimate(0.0, 0.5, 1.0)),
        ("y = Div(two, n)", Estimate(2.0, 0.0, 0.0)),
        ("y = Div(n, m)", Estimate(0.0, 1.0, 0.0)),
        ("s = Mul(n, n) y = Div(s, m)", Estimate(1.0, 2**0.5, 1.0)),
        ("y = Div(x, z)", X.scaled(7**-0.5)),
        ("y = Div(n, zero)", None),
        ("y = Reciprocal(z)", Estimate(7**-0.5, 0.0)),
        ("y = Reciprocal(zero)", None),
        ("y = Pow(x, three)", Estimate(*[0.5 * (4 / 3) ** 1.5] * 2)),
        ("y = Pow(n, half)", Estimate(0.5, 0.5, 0.5)),
        ("y = Pow(n, three)", Estimate(0.5, 0.5, 3.0)),
        ("y = Pow(x, two)", e.squared(X)),
        ("y = Pow(n, minus)", None),
        ("y = Pow(two, n)", None),
        ("y = Pow(u, two)", None),
        ("y = Sqrt(n)", Estimate(1.0, 0.5, 0.5)),
        ("s = Mul(n, n) y = Sqrt(s)", Estimate(3**0.25, 3**0.25 / 2, 1.0)),
        ("y = Log(x)", Estimate(0.0, 10.0)),
        ("y = Neg(z)", Estimate(-2.0, 3**0.5)),
        ("y = Sub(x, z)", Estimate(-1.0, (10 / 3) ** 0.5)),
        ("y = Sub(n, two)", Estimate(-2.0, 1.0, 1 + math.log((1 + 2 / 255) / 3) / math.log(255))),
        ("y = Sum(x, z, x)", Estimate(4.0, (11 / 3) ** 0.5)),
        ("y = Sum(x)", X),
        ("y = Sum(x, u)", None),
        ("y = Mul(x, z)", e.multiply(X, Z)),
        ("y = Mul(n, x)", Estimate(0.0, (4 / 3) ** 0.5, 1.0)),
        ("y = Mul(x, u)", None),
        ("y = Max(x, z)", e.mixed(X, Z)),
        ("y = Min(x, u, z)", e.mixed(X, Z)),
        ("y = Max(u, u)", None),
        ("y = Max(u, half)", None),
        ("y = Min(half, u)", None),
        ("y = Where(b, x, z)", e.mixed(X, Z)),
        ("y = Where(b, u, z)", Z),
        ("y = ReduceMax(n)", Estimate(1.0, 1.0, 1.0)),
        ("y = ReduceMean(z)", Z),
        ("y = Relu(n)", N.rectified()),
        ("y = Relu(u)", None),
        ("y = Abs(n)", Estimate((2 / math.pi) ** 0.5, (1 - 2 / math.pi) ** 0.5, 1.0)),
        ("y = Softmax(n)", Estimate(0.25, 0.25)),
        ("y = Softmax(u)", Estimate(0.25, 0.25)),
    ],
)
def test_arithmetic(body: str, expected: Estimate | None) -> None:
    assert found(body) == (expected and pytest.approx(expected, rel=1e-5, abs=1e-6))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul(x, w)", ROWS.applied_to_rows(X)),
        ("y = MatMul(n, w)", ROWS.applied_to_rows(N)),
        ("y = MatMul(u, w)", None),
        ("y = MatMul(wt, x2)", WeightRows.of(W.T).applied_to_rows(X).turned()),
        ("y = MatMul(wt, u2)", None),
        ("y = MatMul(x, z2)", computed(X, Z, 4)),
        ("y = MatMul(u, z2)", None),
        ("y = MatMul(x, u2)", None),
        ("y = Gemm(x, w, c)", e.add(ROWS.applied_to_rows(X), C)),
        ("y = Gemm(x, w)", ROWS.applied_to_rows(X)),
        ("y = Gemm<alpha = 3.0>(x, w, c)", e.add(ROWS.applied_to_rows(X).scaled(3.0), C)),
        ("y = Gemm<transB = 1>(x, wt, c)", e.add(ROWS.applied_to_rows(X), C)),
        ("y = Gemm(u, w)", None),
        ("y = Gemm(x, z2)", computed(X, Z, 4)),
        ("y = Gemm<alpha = 0.5>(x, z2)", computed(X, Z, 4).scaled(0.5)),
        ("y = Gemm(u, z2)", None),
        ("y = Gemm(x, w, u)", ROWS.applied_to_rows(X)),
    ],
)
def test_products_of_matrices(body: str, expected: Estimate | None) -> None:
    front = "x2 = Transpose(x) z2 = Transpose(z)"
    if "u2" in body:
        front += " v = Add(u, u) u2 = Transpose(v)"
    got = found(f"{front} {body}")
    assert got == (expected and pytest.approx(expected, rel=1e-5, abs=1e-6))


def batch(
    body: str = "h = Identity(x)", inputs: str = "float[1,2,4] x", **arrays: list[float]
) -> Estimate | None:
    """Return the estimate of a batch normalization of h with (scale, bias, mean, variance)."""
    held = {"s": [1.0, 3.0], "t": [4.0, 6.0], "p": [2.0, 4.0], "v": [3.0, 5.0], **arrays}
    return found(
        f"{body} y = BatchNormalization<epsilon = 1.0>(h, s, t, p, v)",
        inputs,
        **{name: np.array(numbers, np.float32) for name, numbers in held.items()},
    )


def test_a_longer_weight_of_large_rows_is_measured() -> None:
    long = np.ones((513, 600), np.float32)
    long[:, 7] = 3
    got = found("y = MatMul(x, k)", "float[4,513] x", k=long)
    assert got is not None
    assert got.column == pytest.approx(3 * 513)


WEIGHTS = {
    "w": (8, 8),
    "wide": (8, 24),
    "bias": (8,),
    "long": (24,),
    "gain": (8,),
    "kernel": (5, 5, 1),
    "level": (5,),
    "turned": (24, 8),
}


def estimates(body: str) -> dict[str, Estimate | None]:
    """Return the estimates of a body's values by name; it reads x and z and makes a and b."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
        g (float[2,5,8] x, float[2,5,8] z, int64[2,5,8] n)
        => (float[2,5,8] a, float[2,5,8] b) {{ {body} }}"""
    )
    rng = np.random.default_rng(0)
    weights = {n: rng.uniform(0.5, 2.0, shape) for n, shape in WEIGHTS.items()}
    weights["upright"] = weights["turned"].T
    for name, array in weights.items():
        weight = np.ascontiguousarray(array, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    graph = build_type_graph(read_flat(model))
    found = Estimates(graph, intervals_of(graph))
    return {name: found[v] for v, name in enumerate(graph.flat.value_names) if name}


@pytest.mark.parametrize(
    ("fused", "nodes"),
    [
        ("Gelu(x)", "b = Gelu(x)"),
        ("BiasGelu(x, bias)", "s = Add(x, bias) b = Gelu(s)"),
        ("FastGelu(x, bias)", "s = Add(x, bias) b = Gelu(s)"),
        ("QuickGelu(x)", "b = Gelu(x)"),
        ("BiasAdd(x, bias, z)", "s = Add(x, bias) b = Add(s, z)"),
        ("BiasSoftmax(x, z)", "b = Softmax(x)"),
        ("SkipLayerNormalization(x, z, gain, bias)",
         "s = Add(x, z) b = LayerNormalization(s, gain, bias)"),
        ("SkipSimplifiedLayerNormalization(x, z, gain)",
         "s = Add(x, z) b = RMSNormalization(s, gain)"),
        ("FusedMatMul<alpha: float = 0.25>(x, w)",
         "m = MatMul(x, w) f = Constant<value_float = 0.25>() b = Mul(m, f)"),
        ("FusedMatMul<transB: int = 1>(x, w)", "t = Transpose(w) b = MatMul(x, w)"),
        ("FusedMatMul(x, z)", "b = MatMul(x, z)"),
        ('FusedGemm<activation: string = "Relu">(x, w, bias)',
         "m = Gemm(x, w, bias) b = Relu(m)"),
        ("Attention<num_heads: int = 2>(x, wide, long)",
         "m = MatMul(x, wide) b = Add(m, long)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, x)", "b = Identity(x)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z, x, long)", "b = Add(x, long)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, z)", "b = Identity(z)"),
        ("MultiHeadAttention<num_heads: int = 2>(x)", "b = Identity(x)"),
        ("MultiHeadAttention<num_heads: int = 2>(x, , , long)", "b = Add(x, long)"),
        ("RotaryEmbedding(x, x, w, w)", "b = Identity(x)"),
        ("FusedConv(x, kernel)", "b = Conv(x, kernel)"),
        ("FusedConv(x, kernel, level)", "b = Conv(x, kernel, level)"),
        ("FusedConv(x, kernel, level, z)", "c = Conv(x, kernel, level) b = Add(c, z)"),
        ('FusedConv<activation: string = "Relu">(x, kernel, , z)',
         "c = Conv(x, kernel) s = Add(c, z) b = Relu(s)"),
        ("FusedGemm(x, w, bias)", "b = Gemm(x, w, bias)"),
        ("FusedMatMul(x, w)", "b = MatMul(x, w)"),
        ("FusedMatMul<transB: int = 1>(x, turned)", "b = MatMul(x, upright)"),
        ("FusedMatMul<alpha: float = 0.25>(x, z)",
         "m = MatMul(x, z) f = Constant<value_float = 0.25>() b = Mul(m, f)"),
        ("Attention<num_heads: int = 2>(x, wide)", "b = MatMul(x, wide)"),
        ("GroupQueryAttention<num_heads: int = 2>(x, z, z)", "b = Identity(z)"),
        ("GroupQueryAttention<num_heads: int = 2>(x)", "b = Identity(x)"),
        ("GroupNorm(x, gain, bias)", "b = LayerNormalization(x, gain, bias)"),
        ("GroupNorm(x, gain)", "b = LayerNormalization(x, gain)"),
        ("EmbedLayerNormalization(x, x, w, w, w, gain, bias)",
         "b = LayerNormalization(x, gain, bias)"),
        ("BiasAdd(x, bias)", "b = Add(x, bias)"),
    ],
)  # fmt: skip
def test_it_is_estimated_like_what_it_stands_for(fused: str, nodes: str) -> None:
    found = estimates(f"a = com.microsoft.{fused} {nodes}")
    a, b = found["a"], found["b"]
    assert a is not None
    assert b is not None
    assert a == pytest.approx(b, rel=0.1)


@pytest.mark.parametrize(
    "guard", ["Identity(n)", "Max(n, e)", "Max(e, n)", "Clip(n, e)", "Add(n, e)"]
)
@pytest.mark.parametrize(
    "norm",
    ["ReduceL2<keepdims=1>(x, axes)", "ReduceL1<keepdims=1>(x, axes)", "ReduceMax<keepdims=1>(a)"],
)
def test_what_is_divided_by_its_norm_is_not_said_to_be_large(norm: str, guard: str) -> None:
    text = f"a = Abs(x) n = {norm} d = {guard} y = Div(x, d)"
    estimate = estimate_of(
        graph_of(text, "float[2,4] x", axes=np.array([1]), e=1e-12), {"x": (0.0, 2.0)}
    )
    assert estimate is None or estimate.size < 10
