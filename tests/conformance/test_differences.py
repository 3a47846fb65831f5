"""Differences of large numbers: squared distances, variances, what a root or logarithm reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse, rewritten

import amp_rewrite as amp

WAYS = {
    "float16": {"precision": "float16", "target": "cuda"},
    "bfloat16": {"precision": "bfloat16", "target": "cuda"},
    "webgpu": {"precision": "float16", "target": "webgpu"},
}
RNG = np.random.default_rng(0)
OPSETS = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'


def model(text: str, **constants: np.ndarray | float) -> onnx.ModelProto:
    """Parse a graph and give it those of some constants that it reads."""
    found = parse(f"{OPSETS} {text}")
    used = {name for node in found.graph.node for name in node.input}
    for name, value in constants.items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        if name in used:
            found.graph.initializer.append(numpy_helper.from_array(array, name))
    return found


def reasons(result: amp.RewriteResult) -> dict[str, str]:
    """Return, by node with one type variable, why it has its type."""
    nodes = (node for node in result.report.nodes if len(node.variables) == 1)
    return {node.name: next(iter(node.variables.values())).reason for node in nodes}


def low(result: amp.RewriteResult) -> set[str]:
    """Return the nodes that compute in low precision."""
    nodes = result.report.nodes
    return {n.name for n in nodes if any(v.dtype != "float32" for v in n.variables.values())}


# h is what a layer gives, (64, 32); each makes d, its squared distances, (64, 64).
SQUARES = {
    "Mul": "s = Mul(h, h) q = ReduceSum(s, last)",
    "Pow": "s = Pow(h, two) q = ReduceSum(s, last)",
    "ReduceSumSquare": "q = ReduceSumSquare(h, last)",
    "ReduceL2": "n = ReduceL2(h, last) q = Mul(n, n)",
    "Einsum": 'v = Einsum<equation = "ij,ij->i">(h, h) q = Unsqueeze(v, last)',
    "ones": "s = Mul(h, h) q = MatMul(s, ones)",
    "product": "a = Unsqueeze(h, last) b = Transpose<perm = [0,2,1]>(a) c = MatMul(b, a) "
    "q = Squeeze(c, last)",
    "diagonal": "a = Transpose(h) b = MatMul(h, a) c = Mul(b, unit) q = ReduceSum(c, last)",
}
DISTANCES = {
    "Add": "t = Transpose(h) [cross] p = MatMul(h, t) m = Mul(p, minus) qt = Transpose(q) "
    "e = Add(m, q) d = Add(e, qt)",
    "Sub": "t = Transpose(h) [cross] p = MatMul(h, t) m = Mul(p, two) qt = Transpose(q) "
    "e = Add(q, qt) d = Sub(e, m)",
    "scaled": "t = Transpose(h) g = Mul(t, minus) [cross] p = MatMul(h, g) qt = Transpose(q) "
    "d = Sum(p, q, qt)",
    "Gemm": "qt = Transpose(q) [cross] p = Gemm<alpha = -2.0, transB = 1>(h, h, q) d = Add(p, qt)",
    "FusedMatMul": "qt = Transpose(q) [cross] p = com.microsoft.FusedMatMul<alpha = -2.0, "
    "transB = 1>(h, h) e = Add(p, q) d = Add(e, qt)",
    "Einsum": 'qt = Transpose(q) [cross] p = Einsum<equation = "ik,jk->ij">(h, h) '
    "m = Mul(p, minus) e = Add(qt, m) d = Add(q, e)",
}
NUMBERS = {
    "w": RNG.standard_normal((32, 32)) / 6,
    "ones": np.ones((32, 1)),
    "unit": np.eye(64),
    "last": np.array([-1]),
    "two": 2.0,
    "minus": -2.0,
    "zero": 0.0,
}
LAYERS = "g (float[64,32] x) => (float[64,32] y) { [layer] h = MatMul(x, w) "
BEHIND = " near = Neg(d) k = Softmax(near) [behind] y = MatMul(k, v0) }"


@pytest.mark.share(3)
@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("distance", DISTANCES)
def test_a_product_that_meets_its_squares_stays_float32(distance: str, square: str) -> None:
    source = model(
        f"{LAYERS} {SQUARES[square]} {DISTANCES[distance]} {BEHIND}",
        **NUMBERS,
        v0=RNG.standard_normal((64, 32)) / 8,
    )
    found = reasons(amp.rewrite(source))
    assert found["cross"] == "difference"
    assert (found["layer"], found["behind"]) == ("allow-list", "allow-list")


CODES = RNG.standard_normal((32, 64)).astype(np.float32) + 8


def test_squares_of_codes_that_the_model_computes_are_known() -> None:
    source = model(
        f"{LAYERS} q = Mul(rows, rows) s = ReduceSum<keepdims = 0>(q, last) "
        "t = Transpose(rows) [cross] p = MatMul(h, t) m = Mul(p, minus) d = Add(m, s) "
        "k = Softmax(d) [behind] y = MatMul(k, v0) }",
        **NUMBERS,
        rows=CODES.T,
        v0=RNG.standard_normal((64, 32)) / 8,
    )
    found = reasons(amp.rewrite(source))
    assert (found["cross"], found["layer"]) == ("difference", "allow-list")


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
