"""Differences of second moments stay float32 where they are divided, or divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of

from amp_rewrite.rewriting.paint.passes.keep_moments import keep_moments

BOX = np.full((1, 1, 3, 3), 1 / 9)
HANN = np.hanning(5)[1:-1]
PLANES = "g (float[1,1,H,W] x, float[1,1,H,W] z) => (float[A,B,C,D] y)"
ROWS = "g (float[B,64] x, float[B,64] z) => (float[B,C] y)"
OLD = '<ir_version: 7, opset_import: ["" : 11]>'
NEW = '<ir_version: 10, opset_import: ["" : 23]>'

MEANS = "mx = Conv(x, k) mz = Conv(z, k) "
VARIANCE = "xx = Mul(x, x) ex = Conv(xx, k) mm = Mul(mx, mx) v = Sub(ex, mm) "
COVARIANCE = "xz = Mul(x, z) e = Conv(xz, k) mxz = Mul(mx, mz) c = Sub(e, mxz) "
MOMENTS = MEANS + VARIANCE + COVARIANCE
IN_MOMENTS = {"mx", "mz", "xx", "ex", "mm", "v", "xz", "e", "mxz", "c"}


def kept(text: str, **constants: Any) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    numbers = {
        "k": BOX,
        "eps": 1e-4,
        "two": 2.0,
        "num": 64.0,
        "half": 0.5,
        "minus": -0.5,
        "ones": np.ones((64, 1)),
        "rows": np.array([1]),
        "w": np.arange(64.0 * 4).reshape(64, 4) - 99,
    }
    return set(marks_of(keep_moments, context_of(model_of(text, **{**numbers, **constants}))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a guided filter: a covariance over a variance
        (f"{PLANES} {{ {MOMENTS} d = Add(v, eps) y = Div(c, d) }}", IN_MOMENTS | {"d", "y"}),
        (f"{OLD} {PLANES} {{ {MOMENTS} d = Add(v, eps) y = Div(c, d) }}", IN_MOMENTS | {"d", "y"}),
        (f"{NEW} {PLANES} {{ {MOMENTS} d = Max(v, eps) y = Div(c, d) }}", IN_MOMENTS | {"d", "y"}),
        # its parts come out of one convolution
        (
            f"{PLANES} {{ xx = Mul(x, x) xz = Mul(x, z) a = Concat<axis=0>(x, z, xx, xz) "
            "s = Conv(a, k) mx, mz, ex, e = Split<axis=0, num_outputs=4>(s) mm = Pow(mx, two) "
            "v = Sub(ex, mm) p = Mul(mx, mz) c = Sub(e, p) d = Add(v, eps) y = Div(c, d) }",
            {"xx", "xz", "a", "s", "mx", "mm", "v", "p", "c", "d", "y"},
        ),
        # a correlation: a product of variances under a root, as a quotient and as a factor
        (
            f"{PLANES} {{ {MOMENTS} zz = Mul(z, z) ez = Conv(zz, k) mzz = Mul(mz, mz) "
            "u = Sub(ez, mzz) p = Mul(u, v) s = Sqrt(p) y = Div(c, s) }",
            IN_MOMENTS | {"zz", "ez", "mzz", "u", "p", "s", "y"},
        ),
        (
            f"{PLANES} {{ {MOMENTS} q = Mul(v, v) r = Pow(q, minus) y = Mul(c, r) }}",
            IN_MOMENTS | {"q", "r", "y"},
        ),
        (
            f"{PLANES} {{ {MOMENTS} d = Add(v, eps) i = Reciprocal(d) y = Mul(i, c) }}",
            IN_MOMENTS | {"d", "i", "y"},
        ),
        # taken away by adding
        (
            f"{PLANES} {{ {MEANS} {COVARIANCE.replace('Sub(e, mxz)', 'Add(e, t)')}"
            f"{VARIANCE} d = Add(v, eps) y = Div(c, d) }}".replace(
                "c = Add", "t = Neg(mxz) c = Add"
            ),
            IN_MOMENTS | {"t", "d", "y"},
        ),
        # a slope: n sum(xz) - sum(x) sum(z)
        (
            f"{ROWS} {{ xz = Mul(x, z) sxz = MatMul(xz, ones) a = Mul(sxz, num) "
            "sx = MatMul(x, ones) sz = MatMul(z, ones) b = Mul(sx, sz) t = Sub(a, b) "
            "xx = Mul(x, x) "
            "sxx = MatMul(xx, ones) c = Mul(num, sxx) d = Mul(sx, sx) u = Sub(c, d) "
            "y = Div(t, u) }",
            {"xz", "sxz", "a", "sx", "sz", "b", "t", "xx", "sxx", "c", "d", "u", "y"},
        ),
        # a Fano factor
        (
            f"{ROWS} {{ xx = Pow(x, two) e = ReduceMean(xx, rows) m = ReduceMean(x, rows) "
            "mm = Pow(m, two) v = Sub(e, mm) y = Div(v, m) }",
            {"xx", "e", "m", "mm", "v", "y"},
        ),
        # a matrix of correlations
        (
            f"{ROWS} {{ t = Transpose(x) g = MatMul(x, t) e = Div(g, num) m = ReduceMean(x, rows) "
            "r = Transpose(m) p = MatMul(m, r) c = Sub(e, p) y = Div(c, z) }",
            {"g", "e", "m", "r", "p", "c", "y"},
        ),
        # a window that the graph computes
        (
            f"{PLANES} {{ o = MatMul(hc, hr) kk = Unsqueeze(o, front) {MOMENTS} d = Add(v, eps) "
            "y = Div(c, d) }".replace(", k)", ", kk)"),
            IN_MOMENTS | {"o", "kk", "d", "y"},
        ),
    ],
)
def test_a_quotient_of_second_moments_is_float32(text: str, expected: set[str]) -> None:
    windows = {"hc": HANN[:, None], "hr": HANN[None], "front": np.array([0, 1])}
    assert kept(text, **windows) == expected


def test_a_branch_is_looked_into() -> None:
    inside = f"{MOMENTS} d = Add(v, eps) o = Div(c, d)"
    text = (
        "g (bool b, float[1,1,H,W] x, float[1,1,H,W] z) => (float[A,B,C,D] y) { y = If(b) <"
        f"then_branch = t () => (float[A,B,C,D] o) {{ {inside} }}, "
        "else_branch = e () => (float[A,B,C,D] q) { q = Conv(x, k) }> }"
    )
    assert kept(text) == IN_MOMENTS | {"d", "o"}


DERIVED = "ix = Conv(x, dx) iy = Conv(x, dy) "
TENSOR = (
    "xx = Mul(ix, ix) yy = Mul(iy, iy) xy = Mul(ix, iy) sxx = Conv(xx, k) syy = Conv(yy, k) "
    "sxy = Conv(xy, k) a = Mul(sxx, syy) b = Mul(sxy, sxy) det = Sub(a, b) "
)
IN_TENSOR = {"ix", "iy", "xx", "yy", "xy", "sxx", "syy", "sxy", "a", "b", "det"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the response of Harris is no quotient
        (
            f"{DERIVED} {TENSOR} t = Add(sxx, syy) tt = Mul(t, t) kt = Mul(tt, eps) "
            "y = Sub(det, kt)",
            IN_TENSOR | {"t", "tt", "kt", "y"},
        ),
        (
            f"{DERIVED} {TENSOR} t = Add(sxx, syy) te = Add(t, eps) y = Div(det, te)",
            IN_TENSOR | {"t", "te", "y"},
        ),
        # the flow of Lucas and Kanade
        (
            f"{DERIVED} {TENSOR} it = Sub(z, x) xt = Mul(ix, it) yt = Mul(iy, it) "
            "sxt = Conv(xt, k) syt = Conv(yt, k) p = Mul(sxy, syt) q = Mul(syy, sxt) "
            "n = Sub(p, q) y = Div(n, det)",
            IN_TENSOR | {"it", "xt", "yt", "sxt", "syt", "p", "q", "n", "y"},
        ),
        # Cramer's rule, with a reciprocal and with a quotient
        (
            f"{DERIVED} a = Mul(ix, iy) b = Mul(iy, iy) det = Sub(a, b) i = Reciprocal(det) "
            "n = Mul(ix, z) o = Mul(iy, x) p = Sub(n, o) y = Mul(p, i)",
            {"ix", "iy", "a", "b", "det", "i", "n", "o", "p", "y"},
        ),
        (
            f"{DERIVED} s = Sigmoid(x) ixx = Conv(ix, dx) iyy = Conv(iy, dy) ixy = Conv(ix, dy) "
            "a = Mul(ixx, iyy) b = Mul(ixy, ixy) det = Sub(a, b) r = Abs(det) f = Max(r, eps) "
            "n = Mul(iyy, ix) o = Mul(ixy, iy) p = Sub(n, o) y = Div(p, f)",
            {"ix", "iy", "ixx", "iyy", "ixy", "a", "b", "det", "r", "f", "n", "o", "p", "y"},
        ),
    ],
)
def test_determinants_of_derivatives_are_float32(text: str, expected: set[str]) -> None:
    sobel = np.outer([1, 2, 1], [-1, 0, 1])
    filters = {"dx": sobel[None, None] / 8, "dy": sobel.T[None, None] / 8}
    assert kept(f"{PLANES} {{ {text} }}", **filters) == expected


def test_the_shares_of_a_mean_are_float32() -> None:
    text = (
        f"{ROWS} {{ r = MatMul(x, w) g = MatMul(z, w) p = Softmax(g) a = Mul(p, r) "
        "m = ReduceSum(a, rows) rr = Mul(r, r) b = Mul(p, rr) e = ReduceSum(b, rows) "
        "mm = Mul(m, m) v = Sub(e, mm) y = Sqrt(v) }"
    )
    assert kept(text) == {"p", "a", "m", "rr", "b", "e", "mm", "v", "y"}


@pytest.mark.parametrize(
    "text", ["y = Div(t, d)", "y = Mul(t, d)", "i = Reciprocal(d) y = Add(t, i)"]
)
@pytest.mark.parametrize("opset", [11, 17])
def test_the_matrix_of_a_determinant_is_float32(text: str, opset: int) -> None:
    head = f'<ir_version: 7, opset_import: ["" : {opset}]> g (float[B,4,4] x, float[B] t) => '
    body = "r = Relu(x) a = Transpose<perm=[0,2,1]>(r) s = MatMul(r, a) d = Det(s)"
    assert kept(f"{head} (float[B] y) {{ {body} {text} }}") == {"a", "s", "d"}


@pytest.mark.parametrize(
    "tail", ["y = Log(d)", "b = Abs(d) y = Log(b)", "b = Mul(d, num) y = Log(b)"]
)
def test_the_logarithm_of_a_determinant_is_float32_with_its_matrix(tail: str) -> None:
    head = '<ir_version: 7, opset_import: ["" : 17]> g (float[B,4,4] x) => (float[B] y)'
    body = "r = Relu(x) a = Transpose<perm=[0,2,1]>(r) s = MatMul(r, a) d = Det(s)"
    made = kept(f"{head} {{ {body} {tail} }}")
    assert made == {"a", "s", "d", "y"} | ({"b"} if "b =" in tail else set())


@pytest.mark.parametrize(
    "text",
    [
        # a complex product, plain, of matrices, and divided by magnitudes
        "a = Mul(x, x1) b = Mul(z, z1) y = Sub(a, b)",
        "a = MatMul(x, x1) b = MatMul(z, z1) y = Sub(a, b)",
        "a = Mul(x, x1) b = Mul(z, z1) c = Sub(a, b) d = Abs(x) y = Div(c, d)",
        # rotated queries, scaled
        "a = Mul(x, x1) b = Mul(z, z1) c = Sub(a, b) d = Div(c, num) y = MatMul(d, w)",
        # a factorization machine
        "s = MatMul(x, ones) q = Mul(s, s) xx = Mul(x, x) e = MatMul(xx, ones) d = Sub(q, e) "
        "h = Mul(d, half) y = Add(h, z1)",
        # a gate, and one less it
        "s = Sigmoid(z) a = Mul(x, s) b = Mul(z, x1) c = Sub(a, b) y = Tanh(c)",
    ],
)
def test_other_differences_of_products_are_left_alone(text: str) -> None:
    signature = "g (float[64,64] x, float[64,64] z, float[64,64] x1, float[64,64] z1)"
    assert not kept(f"{signature} => (float[A,B] y) {{ {text} }}")


def test_a_normalization_keeps_its_deviation_alone() -> None:
    text = (
        f"{ROWS} {{ m = ReduceMean(x, rows) xx = Mul(x, x) e = ReduceMean(xx, rows) mm = Mul(m, m)"
        " v = Sub(e, mm) d = Add(v, eps) s = Sqrt(d) c = Sub(x, m) y = Div(c, s) }"
    )
    assert kept(text) == {"m", "xx", "e", "mm", "v", "d", "s"}
