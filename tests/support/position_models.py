"""Models that compute with positions, as ONNX text: what exporters write in front of attention."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

LENGTH, WIDTH = 8, 16
STARTS = (0, 1_000, 3_000, 30_000, 100_000)


def constant(declared: str, elements: np.ndarray) -> str:
    """Return the text of an initializer."""
    return f"{declared} = {{{', '.join(f'{e:.9g}' for e in elements.reshape(-1))}}}"


def weight(name: str, rows: int = WIDTH, columns: int = WIDTH, seed: int = 0) -> str:
    """Return the text of random weights that keep the size of what they multiply."""
    drawn = np.random.default_rng(seed).standard_normal((rows, columns)) / rows**0.5
    return constant(f"float[{rows},{columns}] {name}", drawn)


FREQUENCIES = 10_000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))

CONSTANTS = f"""
    {constant("float[8] row", FREQUENCIES)}, {constant("float[1,8,1] column", FREQUENCIES)},
    {constant("double[8] wide", FREQUENCIES)},
    {constant("float[8] exponents", np.arange(8) / 8)},
    int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[3] ones = {{1, 1, 1}},
    int64 first = {{0}}, int64 step = {{1}}, int64 axis = {{1}},
    float unit = {{1}}, float theta = {{10000}}, float trained = {{4096}}, float scaling = {{1.2}}
"""

ANGLES = {
    "matrix product": """
        p = Unsqueeze(positions, one) f = Cast<to = 1>(p)
        [angles] r = MatMul(column, f) t = Transpose<perm = [0, 2, 1]>(r)""",
    "expanded frequencies": """
        p = Unsqueeze(positions, one) f = Cast<to = 1>(p) wide_column = Expand(column, ones)
        [angles] r = MatMul(wide_column, f) t = Transpose<perm = [0, 2, 1]>(r)""",
    "product": """
        f = Cast<to = 1>(positions) p = Unsqueeze(f, two) [angles] t = Mul(p, row)""",
    "sum of products": """
        f = Cast<to = 1>(positions)
        [angles] t = Einsum<equation = "bs,d->bsd">(f, row)""",
    "doubles": """
        f = Cast<to = 11>(positions) p = Unsqueeze(f, two) r = Mul(p, wide)
        t = Cast<to = 1>(r)""",
    "identities": """
        i = Identity(positions) p = Unsqueeze(i, one) f = Cast<to = 1>(p) g = Identity(f)
        [angles] r = MatMul(column, g) u = Identity(r) t = Transpose<perm = [0, 2, 1]>(u)""",
    "like a float": """
        p = Unsqueeze(positions, one) f = CastLike(p, unit)
        [angles] r = MatMul(column, f) t = Transpose<perm = [0, 2, 1]>(r)""",
    "frequencies that follow the length": """
        f = Cast<to = 1>(positions) last = ReduceMax<keepdims = 0>(f) n = Add(last, unit)
        ratio = Div(n, trained) grown = Max(ratio, unit) base = Mul(theta, grown)
        powers = Pow(base, exponents) inverse = Reciprocal(powers) p = Unsqueeze(f, two)
        d = Unsqueeze(inverse, zero) [angles] t = MatMul(p, d)""",
    "branches": """
        p = Unsqueeze(positions, one) f = Cast<to = 1>(p) always = Cast<to = 9>(one)
        yes = Squeeze(always)
        r = If(yes) <
            then_branch = a () => (float[1,8,8] ra) { [angles] ra = MatMul(column, f) },
            else_branch = b () => (float[1,8,8] rb) { rb = Mul(column, f) }>
        t = Transpose<perm = [0, 2, 1]>(r)""",
    "a loop": """
        p = Unsqueeze(positions, one) f = Cast<to = 1>(p) always = Cast<to = 9>(one)
        yes = Squeeze(always)
        same, r = Loop(step, yes, f) <
            body = b (int64 i, bool go, float[1,1,8] c)
                => (bool on, float[1,1,8] d, float[1,8,8] s) {
                on = Identity(go) d = Identity(c) [angles] s = MatMul(column, d) }>
        only = Squeeze(r, zero)
        t = Transpose<perm = [0, 2, 1]>(only)""",
}
"""How angles (batch, position, frequency), `t`, are made of int64 positions (batch, position)."""

ATTENTION = """
    e = Concat<axis = 2>(t, t) [cos] cc = Cos(e) [sin] ss = Sin(e)
    c = Mul(cc, scaling) s = Mul(ss, scaling)
    [query] q = MatMul(x, wq) [key] k = MatMul(x, wk)
    q1, q2 = Split<axis = 2>(q, halves) qn = Neg(q2) qh = Concat<axis = 2>(qn, q1)
    qc = Mul(q, c) qs = Mul(qh, s) qr = Add(qc, qs)
    k1, k2 = Split<axis = 2>(k, halves) kn = Neg(k2) kh = Concat<axis = 2>(kn, k1)
    kc = Mul(k, c) ks = Mul(kh, s) kr = Add(kc, ks) kt = Transpose<perm = [0, 2, 1]>(kr)
    [scores] y = MatMul(qr, kt)
"""
"""Rotary embedding as transformers writes it, from angles `t` to the scores of attention."""


def rotary(angles: str, inputs: str = "int64[1,8] positions") -> onnx.ModelProto:
    """Return a model of attention scores (1, 8, 8) whose angles a text computes."""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({inputs}, float[1,8,16] x) => (float[1,8,8] y)
        <{CONSTANTS}, {weight("wq")}, {weight("wk", seed=1)}, int64[2] halves = {{8, 8}}>
        {{ {angles} {ATTENTION} }}"""
    )


def feeds(start: int) -> dict[str, np.ndarray]:
    """Return activations, and the positions from a start on."""
    drawn = np.random.default_rng(start).standard_normal((1, LENGTH, WIDTH))
    positions = np.arange(start, start + LENGTH, dtype=np.int64)[None]
    return {"positions": positions, "x": drawn.astype(np.float32)}
