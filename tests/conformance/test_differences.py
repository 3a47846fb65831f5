"""Differences of large numbers: squared distances, variances, what a root or logarithm reads."""

from __future__ import annotations

import numpy as np
import pytest
from named_nodes import WAYS, low, model, reasons
from rewrite_text import rewritten

import amp_rewrite as amp

RNG = np.random.default_rng(0)
NUMBERS = {
    "w": RNG.standard_normal((32, 32)) / 6,
    "ones": np.ones((32, 1)),
    "last": np.array([-1]),
    "two": 2.0,
    "minus": -2.0,
    "zero": 0.0,
}
LAYERS = "g (float[64,32] x) => (float[64,32] y) { [layer] h = MatMul(x, w) "


CODES = RNG.standard_normal((32, 64)).astype(np.float32) + 8
CODEBOOKS = {
    "Mul": ("[cross] p = MatMul(h, codes) m = Mul(p, minus) d = Add(m, squares)", CODES, 1.0),
    "folded": ("[cross] p = MatMul(h, codes) d = Add(p, squares)", -2 * CODES, 0.25),
    "Gemm": ("[cross] d = Gemm(h, codes, squares)", -2 * CODES, 0.25),
    "Sub": ("[cross] p = MatMul(h, codes) d = Sub(squares, p)", 2 * CODES, 0.25),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spelling", CODEBOOKS)
def test_a_codebook_with_the_squares_of_its_codes_stays_float32(spelling: str, way: str) -> None:
    text, codes, share = CODEBOOKS[spelling]
    source = model(
        f"{LAYERS} {text} k = Softmax(d) [behind] y = MatMul(k, v0) }}",
        **NUMBERS,
        codes=codes,
        squares=share * np.square(codes.astype(np.float64)).sum(0),
        v0=RNG.standard_normal((64, 32)) / 8,
    )
    found = reasons(rewritten(source, **WAYS[way]))
    assert found["cross"] == "difference"
    assert (found["layer"], found["behind"]) == ("allow-list", "allow-list")


@pytest.mark.parametrize("way", WAYS)
def test_neighbours_are_right(way: str) -> None:
    source = model(
        """g (float[200,4] x) => (int64[200,8] nn, float[200,32] z)
        { [points] h = Gemm(x, turn, away) s = Pow(h, two) q = ReduceSum(s, last)
          t = Transpose(h) p = MatMul(h, t) m = Mul(p, minus) qt = Transpose(q) e = Add(m, q)
          d = Add(e, qt) near, nn = TopK<largest = 0>(d, eight) z = MatMul(h, widen) }""",
        **NUMBERS,
        turn=np.linalg.qr(RNG.standard_normal((4, 4)))[0],
        away=np.array([35.0, -12, 1, 5]),
        widen=RNG.standard_normal((4, 32)),
        eight=np.array([8]),
    )
    result = rewritten(source, **WAYS[way])
    feeds = {"x": np.round(RNG.standard_normal((200, 4)), 1).astype(np.float32)}
    wanted, found = (amp.evaluate(m, feeds)["nn"] for m in (source, result.model))
    kept = [len({*a} & {*b}) / 8 for a, b in zip(wanted, found, strict=True)]
    least = 0.95 if WAYS[way]["precision"] == "float16" else 0.3  # points are 0.1 apart
    assert np.mean(kept) > least


@pytest.mark.parametrize("way", WAYS)
def test_the_deviation_of_a_gaussian_process_is_right(way: str) -> None:
    points = RNG.standard_normal((40, 2))
    squares = np.square(points[:, None] - points[None]).sum(-1)
    covariance = np.exp(-squares / 2) + 0.01 * np.eye(40)
    source = model(
        """g (float[6,1,2] x) => (float[6,32] y) {
        a = Sub(x, points) b = Mul(a, a) s = ReduceSum<keepdims = 0>(b, last) e = Mul(s, factor)
        k = Exp(e) [inner] m = MatMul(k, inverse) p = Mul(m, k) q = ReduceSum(p, last)
        v = Sub(c, q) w0 = Max(v, zero) r = Sqrt(w0) [behind] y = MatMul(r, widen) }""",
        **NUMBERS,
        points=points[None],
        factor=-0.5,
        inverse=np.linalg.inv(covariance),
        c=1.01,
        widen=RNG.standard_normal((1, 32)),
    )
    result = rewritten(source, **WAYS[way])
    found = reasons(result)
    assert (found["inner"], found["behind"]) == ("difference", "allow-list")
    feeds = {"x": RNG.standard_normal((6, 1, 2)).astype(np.float32)}
    wanted, made = (amp.evaluate(m, feeds)["y"] for m in (source, result.model))
    error = np.linalg.norm(wanted - made) / np.linalg.norm(wanted)
    assert error < (0.002 if WAYS[way]["precision"] == "float16" else 0.016)


# Each reads k, (64, 32), and makes v, (64, 1).
SIDES = {
    "quadratic form": "a = MatMul(k, inverse) p = Mul(a, k) s = ReduceSum(p, last) v = Sub(c, s)",
    "Einsum": 'e = Einsum<equation = "bi,ij,bj->b">(k, inverse, k) s = Unsqueeze(e, last) '
    "v = Sub(c, s)",
    "factor": "a = MatMul(k, inverse) s = ReduceSumSquare(a, last) v = Sub(c, s)",
    "Neg": "a = MatMul(k, inverse) p = Mul(a, k) s = ReduceSum(p, last) n = Neg(s) v = Add(n, c)",
    "ones": "a = MatMul(k, inverse) p = Mul(a, k) s = MatMul(p, ones) v = Sub(c, s)",
    "scaled": "a = MatMul(k, inverse) p = Mul(a, k) s = ReduceSum(p, last) n = Mul(s, minus) "
    "v = Sum(n, c)",
}
ROOTS = {
    "Sqrt": "m = Max(v, zero) r = Sqrt(m)",
    "Pow": "m = Relu(v) o = Add(m, small) r = Pow(o, half)",
    "Log": "m = Clip(v, small) r = Log(m)",
    "Reciprocal": "o = Add(v, small) q = Squeeze(o, last) u = Unsqueeze(q, last) r = Reciprocal(u)",
    "Div": "o = Abs(v) m = Mul(o, two) r = Div(one, m)",
}


@pytest.mark.share(2)
@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("side", SIDES)
def test_both_sides_of_a_difference_stay_float32(side: str, root: str) -> None:
    source = model(
        f"""{LAYERS} k = Tanh(h) {SIDES[side]} {ROOTS[root]}
        o2 = Mul(k, r) [behind] y = MatMul(o2, w) }}""",
        **NUMBERS,
        inverse=np.eye(32) / 40,
        c=1.01,
        one=1.0,
        half=0.5,
        small=1e-3,
    )
    result = amp.rewrite(source)
    found = reasons(result)
    inner = {n.name for n in result.report.nodes if n.op in ("MatMul", "Einsum", "Sub")}
    inner -= {"layer", "behind"}
    assert {found[name] for name in inner} == {"difference"}
    assert (found["layer"], found["behind"]) == ("allow-list", "allow-list")


LEFT_ALONE = {
    "a residual": "b = MatMul(h, w) s = Add(h, b)",
    "a normalization": "m = ReduceMean(h, last) c = Sub(h, m) p = Pow(c, two) "
    "v = ReduceMean(p, last) e = Add(v, small) r = Sqrt(e) s = Div(c, r)",
    "a variance of a layer": "p = Mul(h, h) a = ReduceMean(p, last) m = ReduceMean(h, last) "
    "q = Mul(m, m) v = Sub(a, q) e = Add(v, small) r = Sqrt(e) s = Div(h, r)",
    "scores less their largest": "m = ReduceMax(h, last) c = Sub(h, m) e = Exp(c) s = Mul(e, h)",
    "the squares of other weights": "q = Mul(other, other) a = ReduceSum<keepdims = 0>(q, last) "
    "b = MatMul(h, w) s = Add(b, a)",
    "a bias of another size": "b = MatMul(h, w) s = Add(b, bias)",
    "a logarithm of a function": "p = Sigmoid(h) e = Sub(two, p) s = Log(e)",
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_products_are_left_alone(case: str) -> None:
    source = model(
        f"{LAYERS} {LEFT_ALONE[case]} [behind] y = MatMul(s, w) }}",
        **NUMBERS,
        small=1e-3,
        bias=RNG.standard_normal(32),
        other=RNG.standard_normal((32, 32)),
    )
    result = rewritten(source, target="cuda")
    products = {n.name for n in result.report.nodes if n.op == "MatMul"}
    assert products <= low(result)
