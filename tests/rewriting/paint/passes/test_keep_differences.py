"""What the pass says of differences, and whom it obeys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.rewriting.paint.passes.keep_differences import keep_differences

SOURCE = """g (float[8,4] x) => (float[8,8] y, float[8,1] r)
    <int64[1] last = {-1}, float two = {2}> {
    [square] s = Mul(x, x) [sum] q = ReduceSum(s, last) t = Transpose(x) [product] p = MatMul(x, t)
    [double] m = Mul(p, two) [met] y = Sub(q, m) [left] d = Sub(two, q) [root] r = Sqrt(d) }"""


def marks(source: str = SOURCE, **options: Any) -> dict[str, tuple[str, str | None]]:
    """Return, by node with one type variable, its reason and what is said of it."""
    nodes = amp.rewrite(parse(source), target="schema", **options).report.nodes
    found = {n.name: next(iter(n.variables.values())) for n in nodes if len(n.variables) == 1}
    return {name: (v.reason, v.detail) for name, v in found.items()}


def test_the_product_and_the_root_are_named() -> None:
    found = marks()
    assert found["product"] == ("difference", "product meets the sum of the squares of x")
    assert found["met"] == found["product"]
    assert found["left"] == ("difference", "a difference in front of root")


def test_a_node_that_the_user_allows_is_not_kept() -> None:
    assert marks(allow_nodes=["product"])["product"][0] == "allow-list"


def test_force_all_keeps_nothing() -> None:
    assert "difference" not in {reason for reason, _ in marks(level="UNSAFE_FORCE_ALL").values()}


def test_whole_numbers_have_no_squares_that_count() -> None:
    source = parse(
        """g (float[8,4] x, int64[8,4] i) => (float[8,4] y, int64[8,1] q) <int64[1] last = {-1}> {
        s = Mul(i, i) q = ReduceSum(s, last) t = Transpose(x) p = MatMul(x, t) y = MatMul(p, x) }"""
    )
    assert amp.rewrite(source, target="schema").report.summary.nodes_converted == 3


NUMBERS = {
    "last": np.array([-1]),
    "rows": np.array([0]),
    "one": 1.0,
    "two": 2.0,
    "half": 0.5,
    "zero": 0.0,
    "minus": -2.0,
    "w": np.arange(16.0).reshape(4, 4) - 8,
    "v": np.arange(16.0).reshape(4, 4) / 8 + 1,
}
GRAPH = "g (float[4,4] x, float[4,4] z, float e) => (float[N] y)"


def kept(body: str, /, **constants: Any) -> set[str]:
    """Return what the nodes make that the pass keeps in float32, by x and z and numbers."""
    model = model_of(f"{GRAPH} {{ {body} }}", **{**NUMBERS, **constants})
    return set(marks_of(keep_differences, context_of(model)))


# What a root reads.

LEFT = "a = MatMul(x, w) b = MatMul(z, v) d = Sub(a, b)"


@pytest.mark.parametrize(
    ("exponent", "is_kept"),
    [(0.5, True), (-1.0, True), (0.99, True), (1.0, False), (2.0, False), ([0.5, 2], False)],
)
def test_a_power_below_one_is_a_root(exponent: float | list[float], is_kept: bool) -> None:
    found = kept(f"{LEFT} y = Pow(d, exponent)", exponent=exponent)
    assert found == ({"y", "d", "a", "b"} if is_kept else set())


@pytest.mark.parametrize(
    ("made", "is_kept"),
    [
        ("n = Neg(b) d = Add(a, n)", True),
        ("n = Mul(b, minus) d = Add(n, a)", True),
        ("n = Mul(minus, b) d = Add(a, n)", True),
        ("n = Div(b, minus) d = Sum(a, n, x)", True),
        ("n = Mul(b, two) d = Add(a, n)", False),
        ("n = Neg(b) d = Sum(n)", False),
        ("n = Neg(b) d = Mul(a, n)", False),
        ("n = Neg(b) d = Concat<axis = 0>(a, n)", False),
        ("n = Exp(b) d = Add(a, n)", False),
    ],
)
def test_a_sum_with_what_is_negative_is_a_difference(made: str, is_kept: bool) -> None:
    found = kept(f"a = MatMul(x, w) b = MatMul(z, v) {made} y = Sqrt(d)")
    assert ("d" in found) is is_kept
    assert ("a" in found) is is_kept


def test_what_two_of_three_sides_are_made_of_is_left_alone() -> None:
    body = "h = Add(x, z) a = Mul(h, h) b = MatMul(z, v) c = Neg(h) d = Sum(a, b, c) y = Log(d)"
    assert kept(body) == {"y", "d", "a", "b", "c"}


# What meets the squares of its own operand.

CROSS = "t = Transpose(x) p = MatMul(x, t)"
MET = {
    "Mul": ("s = Mul(x, x) q = ReduceSum(s, last)", "sq"),
    "Mul of what is moved": ("m = Identity(x) s = Mul(m, x) q = ReduceSum(s, last)", "msq"),
    "Mul of what is scaled": ("m = Mul(x, two) s = Mul(x, m) q = ReduceSum(s, last)", "msq"),
    "Mul of two": ("s = Mul(x, z) q = ReduceSum(s, last)", ""),
    "a square without a sum": ("q = Mul(x, x)", ""),
    "Mean": ("s = Mul(x, x) q = ReduceMean(s, last)", "sq"),
    "Pow": ("s = Pow(x, two) q = ReduceSum(s, last)", "sq"),
    "Pow of what is moved": ("m = Identity(x) s = Pow(m, two) q = ReduceSum(s, last)", "msq"),
    "Pow by several": ("s = Pow(x, pairs) q = ReduceSum(s, last)", "sq"),
    "Pow by others": ("s = Pow(x, mixed) q = ReduceSum(s, last)", ""),
    "a cube": ("s = Pow(x, three) q = ReduceSum(s, last)", ""),
    "the sum moved": ("s = Mul(x, x) i = Identity(s) q = ReduceSum(i, last)", "siq"),
    "ReduceSumSquare": ("q = ReduceSumSquare(x, last)", "q"),
    "of what is moved": ("m = Identity(x) q = ReduceSumSquare(m, last)", "mq"),
    "ReduceL2": ("n = ReduceL2(x, last) q = Mul(n, n)", "nq"),
    "ones": ("s = Mul(x, x) q = MatMul(s, ones)", "sq"),
    "ones without squares": ("q = MatMul(x, ones)", ""),
    "ones and other squares": ("n = Exp(z) s = Mul(n, n) q = MatMul(s, ones)", ""),
    "its own product": ('q = Einsum<equation = "ij,ij->i">(x, x)', "q"),
    "its own product, moved": (
        'm = Identity(x) n = Neg(x) q = Einsum<equation = "ij,ij->i">(m, n)',
        "mnq",
    ),
    "a product of two": ('q = Einsum<equation = "ij,ij->i">(x, z)', ""),
    "a sum of one": ('q = Einsum<equation = "ij->i">(x)', ""),
    "a mean of what is": ("q = ReduceMean(x, last)", ""),
}


@pytest.mark.parametrize("name", MET)
def test_squares_are_told_from_what_is_none(name: str) -> None:
    squares, nodes = MET[name]
    found = kept(
        f"p = MatMul(x, z) {squares} m2 = Mul(p, minus) y = Add(m2, q)",
        three=3.0,
        pairs=[2.0, 2.0, 2.0, 2.0],
        mixed=[2.0, 2.0, 2.0, 3.0],
        nothing=np.zeros(0),
        ones=np.ones((4, 4)),
        unit=np.eye(4),
        single=np.full((1, 1), 2.0),
    )
    assert found == ({*nodes, "p", "m2", "y"} if nodes else set())


DIAGONALS = {
    "the unit matrix": ("s = Mul(p, unit) q = ReduceSum(s, last)", "sq"),
    "the unit matrix first": ("s = Mul(unit, p) q = ReduceSum(s, last)", "sq"),
    "a mean": ("s = Mul(p, unit) q = ReduceMean(s, last)", "sq"),
    "moved": ("m = Identity(p) s = Mul(m, unit) i = Neg(s) q = ReduceSum(i, last)", "misq"),
    "one number": ("s = Mul(p, two) q = ReduceSum(s, last)", ""),
    "one number in a matrix": ("s = Mul(p, single) q = ReduceSum(s, last)", ""),
    "nothing": ("q = ReduceSum(p, last)", ""),
    "not of a product": ("s = Mul(x, unit) q = ReduceSum(s, last)", ""),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_the_diagonal_of_a_product_is_what_a_matrix_masks(name: str) -> None:
    diagonal, nodes = DIAGONALS[name]
    found = kept(f"{CROSS} {diagonal} y = Sub(q, p)", unit=np.eye(4), single=np.full((1, 1), 2.0))
    assert found == ({*nodes, "t", "p", "y"} if nodes else set())


SUMMED = "s = Mul(x, x) q = ReduceSum(s, last)"


PRODUCTS = {
    "first": ("y = Sub(q, p)", "y"),
    "second": ("y = Sub(p, q)", "y"),
    "in a longer sum": ("y = Sum(z, q, p)", "y"),
    "negated": ("n = Neg(p) y = Add(q, n)", "ny"),
    "moved": ("m = Transpose(p) y = Add(q, m)", "my"),
    "behind a sum": ("a = Add(p, z) y = Sub(q, a)", "ay"),
    "behind a difference": ("a = Sub(z, p) y = Add(q, a)", "ay"),
    "behind a Cast": ("c = Cast<to = 10>(p) a = Cast<to = 1>(c) y = Add(q, a)", "cay"),
    "behind a function": ("a = Exp(p) y = Add(q, a)", ""),
    "behind a product of elements": ("a = Mul(z, p) y = Add(q, a)", ""),
    "multiplied": ("y = Mul(q, p)", ""),
    "compared": ("c = Less(q, p) y = Cast<to = 1>(c)", ""),
    "beside each other": ("y = Concat<axis = 1>(q, p)", ""),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_meets_squares_where_both_are_added(name: str) -> None:
    met, nodes = PRODUCTS[name]
    assert kept(f"{CROSS} {SUMMED} {met}") == ({*"ptsq", *nodes} if nodes else set())


@pytest.mark.parametrize(
    ("gemm", "is_kept"),
    [
        ("Gemm(x, z, q)", True),
        ("Gemm(z, x, q)", True),
        ("Gemm(z, z, q)", False),
        ("Gemm(q, x, z)", False),
    ],
)
def test_the_addend_of_a_gemm_is_added_to_its_product(gemm: str, is_kept: bool) -> None:
    assert kept(f"{SUMMED} y = {gemm}") == ({*"sqy"} if is_kept else set())


JOINED = {
    "beside what they are of": ("c = Concat<axis = 1>(x, q)", True),
    "in front of it": ("c = Concat<axis = 1>(q, x)", True),
    "moved": ("a = Concat<axis = 1>(q, x) c = Identity(a)", True),
    "beside what is scaled": ("m = Mul(x, two) c = Concat<axis = 1>(q, m)", True),
    "beside something else": ("c = Concat<axis = 1>(q, z)", False),
    "added to it": ("c = Add(q, x)", False),
    "alone": ("c = Identity(q)", False),
}


@pytest.mark.parametrize("name", JOINED)
def test_squares_may_stand_beside_what_they_are_of_in_one_operand(name: str) -> None:
    joined, is_kept = JOINED[name]
    for product in ("MatMul(c, other)", "MatMul(other, c)"):
        found = kept(f"{SUMMED} {joined} y = {product}", other=np.ones((5, 5)))
        assert ("y" in found) is is_kept


ROWS = np.array([[1.0, 2, 3], [4, 5, 7]])
STORED = {
    "the same": (ROWS, True),
    "turned": (ROWS.T, True),
    "scaled": (-3 * ROWS, True),
    "turned and scaled": (2 * ROWS.T, True),
    "rounded": (ROWS * (1 + 5e-4 * np.eye(2, 3)), True),
    "not the same": (ROWS * (1 + 5e-3 * np.eye(2, 3)), False),
    "longer": (np.concatenate([ROWS, ROWS]), False),
    "in another order": (ROWS[:, ::-1], False),
    "with an axis more": (ROWS[None], False),
    "of another shape": (ROWS.reshape(1, 6), False),
}


@pytest.mark.parametrize("name", STORED)
def test_a_constant_holds_the_numbers_whose_squares_another_one_is(name: str) -> None:
    held, is_kept = STORED[name]
    rows = (
        "s = Mul(held, held) q = ReduceSum(s, last) t = Transpose(q)"
        " [cross] p = MatMul(z, rows) y = Sub(q, p)"
    )
    assert ("p" in kept(rows, held=held, rows=ROWS)) is is_kept
    assert ("p" in kept(rows, rows=ROWS, held=held)) is is_kept


# Products to which a constant is added that holds the squares of their weights.

WEIGHTS = np.array([[1.0, 2, 3], [4, 5, 7]])
OF_COLUMNS, OF_ROWS = np.square(WEIGHTS).sum(0), np.square(WEIGHTS).sum(1)
KERNELS = np.arange(1.0, 13).reshape(3, 2, 2, 1)
ADDENDS = {
    "columns": (WEIGHTS, OF_COLUMNS, True),
    "rows": (WEIGHTS, OF_ROWS, True),
    "a part of them": (WEIGHTS, OF_COLUMNS / 4, True),
    "rounded": (WEIGHTS, OF_COLUMNS * [1, 1, 1.0005], True),
    "kernels": (KERNELS, np.square(KERNELS).sum((1, 2, 3)), True),
    "not quite": (WEIGHTS, OF_COLUMNS * [1, 1, 1.005], False),
    "of either sign": (WEIGHTS, OF_COLUMNS * [1, -1, 1], False),
    "a zero": (WEIGHTS * [0, 1, 1], OF_COLUMNS * [0, 1, 1], False),
    "a zero that is no square": (WEIGHTS * [0, 1, 1], OF_COLUMNS, False),
    "too many": (WEIGHTS, np.concatenate([OF_COLUMNS, OF_COLUMNS]), False),
    "of a vector": (WEIGHTS[0], np.square(WEIGHTS[0]), False),
}


@pytest.mark.parametrize("name", ADDENDS)
def test_the_squares_of_weights_are_known_among_constants(name: str) -> None:
    weights, addend, is_kept = ADDENDS[name]
    found = kept("p = MatMul(x, weights) y = Add(p, addend)", weights=weights, addend=addend)
    assert found == ({"p", "y"} if is_kept else set())


@pytest.mark.parametrize(("steps", "is_kept"), [(11, True), (12, False)])
def test_a_product_is_followed_for_some_nodes(steps: int, is_kept: bool) -> None:
    names = ["p", *(f"i{k}" for k in range(steps))]
    way = " ".join(f"{b} = Identity({a})" for a, b in pairwise(names))
    body = f"p = MatMul(x, weights) {way} y = Add({names[-1]}, addend)"
    found = kept(body, weights=WEIGHTS, addend=OF_COLUMNS)
    assert found == ({"y", *names} if is_kept else set())


@pytest.mark.parametrize("tail", ["a = Add(p, r) y = Sub(q, a)", "y = Sum(q, p, r)"])
def test_all_products_beside_the_squares_are_kept(tail: str) -> None:
    body = "p = MatMul(x, z) r = MatMul(x, z) n = ReduceL2(x, last) q = Mul(n, n) "
    assert {"p", "r"} <= kept(body + tail)


PAIRS = "g (float[B,64] x, float[B,64] z) => (float[B,C] y)"
NORMS = "a = ReduceL2<axes=[1]>(x) b = ReduceL2<axes=[1]>(z) "
UNITS = f"{NORMS} xn = Div(x, a) zn = Div(z, b) "
NUMBERS_OF_PAIRS = {
    "one": 1.0,
    "minus": -1.0,
    "two": 2.0,
    "tiny": 1e-8,
    "axis": np.array([1]),
    "w": np.arange(64.0 * 64).reshape(64, 64) - 2000,
}


def kept_of_pairs(text: str, opset: int = 17) -> set[str]:
    """Return what the nodes make that the pass keeps in float32."""
    model = model_of(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}', **NUMBERS_OF_PAIRS)
    return set(marks_of(keep_differences, context_of(model)))


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
    assert kept_of_pairs(f"{PAIRS} {{ {body} }}", opset) == expected


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
    assert not kept_of_pairs(f"{PAIRS} {{ {body} }}")
