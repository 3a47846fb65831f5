"""What the pass says of differences, and whom it obeys."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.rewriting.paint.passes import keep_differences
from amp_rewrite.rewriting.paint.passes.keep_differences import KeepDifferences

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


UNIT = ", ".join("1" if k % 5 == 0 else "0" for k in range(16))
SQUARES = {
    "the diagonal of a product": (
        "t = Transpose(x) [made] g = MatMul(x, t) s = Mul(g, unit) q = ReduceSum(s, last)",
        True,
    ),
    "scaled": ("s = Mul(x, x) r = ReduceSum(s, last) [made] q = Mul(r, two)", True),
    "bent": ("s = Mul(x, x) r = ReduceSum(s, last) [made] q = Exp(r)", False),
    "a constant's": ("s = Mul(rows, rows) r = ReduceSum(s, last) [made] q = Transpose(r)", False),
}


@pytest.mark.parametrize("name", SQUARES)
def test_squares_are_known_in_other_spellings(name: str) -> None:
    squares, is_kept = SQUARES[name]
    found = marks(
        f"""g (float[4,4] x) => (float[4,4] y) <int64[1] last = {{-1}}, float two = {{2}},
        float[4,4] unit = {{{UNIT}}}, float[4,4] rows = {{{UNIT}}}> {{
        {squares} u = Transpose(x) [product] p = MatMul(x, u) y = Sub(q, p) }}"""
    )
    assert (found["product"][0] == "difference") is is_kept
    assert (found["made"][0] == "difference") is is_kept


@pytest.mark.parametrize(
    ("rows", "is_kept"), [("1, 4, 2, 5, 3, 6", True), ("1, 2, 3, 4, 5, 6", False)]
)
def test_a_constant_meets_its_own_squares_where_it_is_stored_twice(
    rows: str, is_kept: bool
) -> None:
    found = marks(
        f"""g (float[8,2] x) => (float[8,3] y) <int64[1] last = {{-1}},
        float[2,3] columns = {{1, 2, 3, 4, 5, 6}}, float[3,2] rows = {{{rows}}}> {{
        s = Mul(rows, rows) r = ReduceSum(s, last) q = Transpose(r)
        [product] p = MatMul(x, columns) y = Sub(q, p) }}"""
    )
    assert (found["product"][0] == "difference") is is_kept


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
    return set(marks_of(KeepDifferences(), context_of(model)))


# What a root reads.

LEFT = "a = MatMul(x, w) b = MatMul(z, v) d = Sub(a, b)"


@pytest.mark.parametrize(
    ("exponent", "is_kept"),
    [(0.5, True), (-1.0, True), (0.99, True), (1.0, False), (2.0, False), ([0.5, 2], False)],
)
def test_a_power_below_one_is_a_root(exponent: float | list[float], is_kept: bool) -> None:
    found = kept(f"{LEFT} y = Pow(d, exponent)", exponent=exponent)
    assert found == ({"y", "d", "a", "b"} if is_kept else set())


def test_a_power_that_the_model_is_given_is_no_root() -> None:
    assert not kept(f"{LEFT} y = Pow(d, e)")
    assert not kept(f"{LEFT} y = Pow(d, nothing)", nothing=np.zeros(0))


def test_a_number_over_a_difference_is_a_root_and_no_other_quotient() -> None:
    assert kept(f"{LEFT} y = Div(one, d)") == {"y", "d", "a", "b"}
    assert not kept(f"{LEFT} y = Div(d, one)")
    assert not kept(f"{LEFT} y = Div(z, d)")


def test_a_root_of_something_else_does_not_hide_the_next_one() -> None:
    body = f"{LEFT} s = Pow(d, two) t = Div(s, z) r = Sqrt(x) y = Sqrt(d)"
    assert kept(body) == {"y", "d", "a", "b"}


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


@pytest.mark.parametrize(
    ("way", "passes"),
    [
        ("Relu(d)", True),
        ("Max(d, zero)", True),
        ("Min(d, one)", True),
        ("Clip(d, zero)", True),
        ("Abs(d)", True),
        ("Transpose(d)", True),
        ("Mul(d, two)", True),
        ("Add(d, half)", True),
        ("Mul(d, z)", False),
        ("Exp(d)", False),
        ("Softmax(d)", False),
    ],
)
def test_what_may_stand_between_a_difference_and_its_root(way: str, passes: bool) -> None:
    found = kept(f"{LEFT} c = {way} y = Sqrt(c)")
    assert found == ({"y", "c", "d", "a", "b"} if passes else set())


def test_what_both_sides_are_made_of_is_left_alone() -> None:
    variance = "s = Mul(c, c) a = ReduceMean(s, last) m = ReduceMean(c, last) b = Mul(m, m)"
    found = kept(
        f"h = MatMul(x, w) k = MatMul(h, v) c = Sub(h, k) {variance} d = Sub(a, b) y = Sqrt(d)"
    )
    assert found == {"y", "d", "a", "s", "b", "m"}


def test_what_two_of_three_sides_are_made_of_is_left_alone() -> None:
    body = "h = Add(x, z) a = Mul(h, h) b = MatMul(z, v) c = Neg(h) d = Sum(a, b, c) y = Log(d)"
    assert kept(body) == {"y", "d", "a", "b", "c"}


def test_a_layer_ends_what_computes_a_side() -> None:
    body = "g = MatMul(x, w) f = Add(g, one) a = MatMul(f, v) d = Sub(one, a) y = Sqrt(d)"
    assert kept(body) == {"y", "d", "a"}


def test_a_side_may_be_a_constant_or_an_input() -> None:
    assert kept("d = Sub(one, x) y = Sqrt(d)") == {"y", "d"}
    assert kept("d = Sub(x, z) y = Sqrt(d)") == {"y", "d"}


def test_the_first_of_two_roots_is_named() -> None:
    model = model_of(f"{GRAPH} {{ {LEFT} [first] r = Sqrt(d) [second] y = Log(d) }}", **NUMBERS)
    found = marks_of(KeepDifferences(), context_of(model))
    details = {value: mark.detail for value, mark in found.items()}
    assert details.pop("y") == "a difference in front of second"
    assert details == dict.fromkeys("abdr", "a difference in front of first")


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
    "a power that is given": ("s = Pow(x, e) q = ReduceSum(s, last)", ""),
    "a power of none": ("s = Pow(x, nothing) q = ReduceSum(s, last)", ""),
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


@pytest.mark.parametrize(
    "product", ["MatMul(z, x)", "MatMul(x, z)", 'Einsum<equation = "ij->ji">(x)']
)
def test_a_product_of_two_things_has_no_squares_on_its_diagonal(product: str) -> None:
    body = f"p = {product} s = Mul(p, unit) q = ReduceSum(s, last) y = Sub(q, p)"
    assert not kept(body, unit=np.eye(4))


def test_a_product_does_not_meet_itself() -> None:
    assert not kept(f"{CROSS} y = Add(p, p)")
    assert kept(f"{CROSS} r = MatMul(x, t) y = Add(p, r)") == {"t", "p", "r", "y"}


SUMMED = "s = Mul(x, x) q = ReduceSum(s, last)"
WAYS = {
    "Transpose": ("r = Transpose(q)", True),
    "Cast": ("c = Cast<to = 10>(q) r = Cast<to = 1>(c)", True),
    "Mul by a number": ("r = Mul(q, two)", True),
    "Div by a number": ("r = Div(q, two)", True),
    "Add": ("r = Add(q, z)", True),
    "Sub": ("r = Sub(z, q)", True),
    "Neg": ("r = Neg(q)", True),
    "Pow": ("r = Pow(q, half)", True),
    "ReduceSum": ("r = ReduceSum(q, rows)", True),
    "its square": ("r = Mul(q, q)", True),
    "the square of what is scaled": ("m = Mul(q, two) r = Mul(m, q)", True),
    "Mul": ("r = Mul(q, z)", False),
    "Div": ("r = Div(q, z)", False),
    "Sqrt": ("r = Sqrt(q)", False),
    "Softmax": ("r = Softmax(q)", False),
    "ReduceMax": ("r = ReduceMax(q, last)", False),
    "layers": ("r = MatMul(q, ones)", False),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_hands_squares_on_to_the_sum_where_they_meet_a_product(name: str) -> None:
    way, goes_on = WAYS[name]
    found = kept(f"{CROSS} {SUMMED} {way} y = Sub(r, p)", ones=np.ones((1, 4)))
    between = {word for word in way.split() if len(word) == 1 and word not in "=m"}
    assert found == ({*"ptsqy"} | between if goes_on else set())


@pytest.mark.parametrize(("steps", "is_kept"), [(0, True), (12, True), (13, False)])
def test_squares_are_followed_for_some_nodes(steps: int, is_kept: bool) -> None:
    names = ["q", *(f"i{k}" for k in range(steps))]
    way = " ".join(f"{b} = Identity({a})" for a, b in pairwise(names))
    found = kept(f"{CROSS} {SUMMED} {way} y = Sub({names[-1]}, p)")
    assert found == ({*"ptsy", *names} if is_kept else set())


def test_squares_meet_all_products_of_what_they_are_of() -> None:
    body = f"{CROSS} {SUMMED} r = MatMul(x, w) a = Sub(q, r) b = Neg(q) y = Sub(b, p)"
    assert kept(body) == {*"ptsqraby"}
    assert kept(f"{CROSS} {SUMMED} a = Sub(q, p) y = Sub(q, z)") == {*"ptsqa"}


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


def test_a_product_of_something_else_meets_no_squares() -> None:
    assert not kept(f"t = Transpose(z) p = MatMul(z, t) {SUMMED} y = Sub(q, p)")


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
    "zeros": (np.zeros((2, 3)), False),
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
    "taken away": (WEIGHTS, -OF_COLUMNS, True),
    "rounded": (WEIGHTS, OF_COLUMNS * [1, 1, 1.0005], True),
    "in a row": (WEIGHTS, OF_COLUMNS[None], True),
    "kernels": (KERNELS, np.square(KERNELS).sum((1, 2, 3)), True),
    "kernels behind axes": (KERNELS, np.square(KERNELS).sum((1, 2, 3)).reshape(3, 1, 1), True),
    "matrices": (KERNELS.reshape(3, 2, 2), np.square(KERNELS.reshape(3, 2, 2)).sum(-2), True),
    "rows of matrices": (
        KERNELS.reshape(3, 2, 2),
        np.square(KERNELS.reshape(3, 2, 2)).sum(-1),
        True,
    ),
    "not quite": (WEIGHTS, OF_COLUMNS * [1, 1, 1.005], False),
    "of either sign": (WEIGHTS, OF_COLUMNS * [1, -1, 1], False),
    "a zero": (WEIGHTS * [0, 1, 1], OF_COLUMNS * [0, 1, 1], False),
    "a zero that is no square": (WEIGHTS * [0, 1, 1], OF_COLUMNS, False),
    "one": (WEIGHTS[:, :1], OF_COLUMNS[:1], False),
    "too many": (WEIGHTS, np.concatenate([OF_COLUMNS, OF_COLUMNS]), False),
    "of a vector": (WEIGHTS[0], np.square(WEIGHTS[0]), False),
}


@pytest.mark.parametrize("name", ADDENDS)
def test_the_squares_of_weights_are_known_among_constants(name: str) -> None:
    weights, addend, is_kept = ADDENDS[name]
    found = kept("p = MatMul(x, weights) y = Add(p, addend)", weights=weights, addend=addend)
    assert found == ({"p", "y"} if is_kept else set())


PLACES = {
    "the addend of a Gemm": ("y = Gemm(x, weights, addend)", "y"),
    "Sub": ("p = MatMul(x, weights) y = Sub(addend, p)", "py"),
    "Sum": ("p = MatMul(x, weights) y = Sum(z, addend, p)", "py"),
    "behind a factor": ("p = MatMul(x, weights) m = Mul(p, two) y = Add(m, addend)", "pmy"),
    "moved": ("p = MatMul(x, weights) m = Identity(p) y = Add(m, addend)", "pmy"),
    "behind a Split": (
        "p = MatMul(x, weights) a, b = Split<num_outputs = 2>(p) y = Add(a, addend)",
        "pay",
    ),
    "behind another sum": ("p = MatMul(x, weights) a = Add(p, z) y = Add(a, addend)", "pay"),
    "behind another constant": ("p = MatMul(x, weights) a = Add(p, two) y = Add(a, addend)", "pay"),
    "scaled weights": ("n = Mul(x, two) p = MatMul(n, weights) y = Add(p, addend)", "npy"),
    "moved weights": ("n = Identity(weights) p = MatMul(x, n) y = Add(p, addend)", "npy"),
    "read by two": ("p = MatMul(x, weights) y = Add(p, addend) k = Neg(p)", ""),
    "behind a function": ("p = MatMul(x, weights) m = Exp(p) y = Add(m, addend)", ""),
    "multiplied": ("p = MatMul(x, weights) y = Mul(p, addend)", ""),
    "of two weights": ("p = MatMul(w, weights) y = Add(p, addend)", ""),
    "of no weights": ("p = MatMul(x, z) y = Add(p, addend)", ""),
    "nothing": ("y = MatMul(x, weights)", ""),
    "no constant": ("y = Gemm(x, weights, z)", ""),
    "no addend": ("p = Gemm(x, weights) y = Exp(p)", ""),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_squares_of_weights_are_found_behind_their_product(name: str) -> None:
    body, nodes = PLACES[name]
    assert kept(body, weights=WEIGHTS, addend=OF_COLUMNS) == {*nodes}


@pytest.mark.parametrize(("steps", "is_kept"), [(11, True), (12, False)])
def test_a_product_is_followed_for_some_nodes(steps: int, is_kept: bool) -> None:
    names = ["p", *(f"i{k}" for k in range(steps))]
    way = " ".join(f"{b} = Identity({a})" for a, b in pairwise(names))
    body = f"p = MatMul(x, weights) {way} y = Add({names[-1]}, addend)"
    found = kept(body, weights=WEIGHTS, addend=OF_COLUMNS)
    assert found == ({"y", *names} if is_kept else set())


@pytest.mark.parametrize(("most", "is_kept"), [(6, True), (5, False)])
def test_long_constants_are_not_read(
    monkeypatch: pytest.MonkeyPatch, most: int, is_kept: bool
) -> None:
    monkeypatch.setattr(keep_differences, "MOST_READ", most)
    found = kept("p = MatMul(x, weights) y = Add(p, addend)", weights=WEIGHTS, addend=OF_COLUMNS)
    assert bool(found) is is_kept


def test_a_long_constant_holds_no_known_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "s = Mul(held, held) q = ReduceSum(s, last) p = MatMul(z, rows) y = Sub(q, p)"
    assert kept(body, held=ROWS, rows=ROWS)
    assert not kept(body, held=np.zeros((2, 3)), rows=np.zeros((2, 3)))
    monkeypatch.setattr(keep_differences, "MOST_READ", 6)
    assert not kept(body, held=np.concatenate([ROWS, ROWS]), rows=ROWS)
    assert not kept(body, held=ROWS, rows=np.concatenate([ROWS, ROWS]))
    same = body.replace("rows", "held")
    assert "p" in kept(same, held=np.concatenate([ROWS, ROWS]))


@pytest.mark.parametrize("tail", ["a = Add(p, r) y = Sub(q, a)", "y = Sum(q, p, r)"])
def test_all_products_beside_the_squares_are_kept(tail: str) -> None:
    body = "p = MatMul(x, z) r = MatMul(x, z) n = ReduceL2(x, last) q = Mul(n, n) "
    assert {"p", "r"} <= kept(body + tail)
