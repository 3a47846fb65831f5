"""One less a cosine stays float32."""

from __future__ import annotations

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of

from amp_rewrite.rewriting.paint.passes.keep_cosines import keep_cosines

PAIRS = "g (float[B,64] x, float[B,64] z) => (float[B,C] y)"
NORMS = "a = ReduceL2<axes=[1]>(x) b = ReduceL2<axes=[1]>(z) "
UNITS = f"{NORMS} xn = Div(x, a) zn = Div(z, b) "
NUMBERS = {
    "one": 1.0,
    "minus": -1.0,
    "two": 2.0,
    "tiny": 1e-8,
    "axis": np.array([1]),
    "w": np.arange(64.0 * 64).reshape(64, 64) - 2000,
}


def kept(text: str, opset: int = 17) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    model = model_of(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}', **NUMBERS)
    return set(marks_of(keep_cosines, context_of(model)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            f"{NORMS} p = Mul(x, z) d = ReduceSum(p, axis) n = Mul(a, b) c = Div(d, n) "
            "y = Sub(one, c)",
            {"a", "b", "p", "d", "n", "c", "y"},
        ),
        (
            f"{NORMS} p = Mul(x, z) d = ReduceSum(p, axis) n = Mul(a, b) m = Max(n, tiny) "
            "i = Reciprocal(m) c = Mul(d, i) y = Sub(one, c)",
            {"a", "b", "p", "d", "n", "m", "i", "c", "y"},
        ),
        (
            f"{UNITS} t = Transpose(zn) c = MatMul(xn, t) k = Neg(c) y = Add(k, one)",
            {"a", "b", "xn", "zn", "t", "c", "k", "y"},
        ),
        (
            f'{UNITS} c = Einsum<equation="bi,bi->b">(xn, zn) m = Min(c, one) y = Sub(one, m)',
            {"a", "b", "xn", "zn", "c", "m", "y"},
        ),
        (
            "xn = LpNormalization<axis=1>(x) zn = LpNormalization<axis=1>(z) p = Mul(xn, zn) "
            "c = ReduceSum(p, axis) y = Sub(c, one)",
            {"xn", "zn", "p", "c", "y"},
        ),
        (
            "q = Mul(x, x) s = ReduceSum(q, axis) r = Sqrt(s) xn = Div(x, r) c = MatMul(xn, w) "
            "y = Add(c, minus)",
            {"q", "s", "r", "xn", "c", "y"},
        ),
    ],
)
@pytest.mark.parametrize("opset", [13, 17])
def test_one_less_a_cosine_is_float32(body: str, expected: set[str], opset: int) -> None:
    assert kept(f"{PAIRS} {{ {body} }}", opset) == expected


@pytest.mark.parametrize(
    "body",
    [
        f"{UNITS} t = Transpose(zn) y = MatMul(xn, t)",  # a cosine from which nothing is taken
        "h = MatMul(x, w) s = Sigmoid(h) y = Sub(one, s)",  # a gate
        "q = Mul(x, x) m = ReduceSum(q, axis) r = Sqrt(m) n = Div(x, r) y = Sub(one, n)",  # a norm
        "p = Mul(x, z) i = ReduceSum(p, axis) s = Add(x, z) u = ReduceSum(s, axis) d = Div(i, u) "
        "y = Sub(one, d)",  # a Dice loss
        "h = MatMul(x, w) k = MatMul(z, w) t = Transpose(k) s = MatMul(h, t) y = Sub(two, s)",
    ],
)
def test_other_differences_from_one_are_left_alone(body: str) -> None:
    assert not kept(f"{PAIRS} {{ {body} }}")
