from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_nodes import check_opened, check_vjp, counts, differentiated, nodes, operators
from gradient_table import NEWEST, Row, check_difference, check_float32, second_views

from amp_rewrite.training.grad import GradientError

ROWS = [
    Row("MatMul", ((2, 3), (3, 4)), opset=13),
    Row("MatMul", ((2, 3), (3, 4)), opset=NEWEST),
    Row("MatMul", ((3,), (3,))),
    Row("MatMul", ((3,), (3, 4))),
    Row("MatMul", ((2, 3), (3,))),
    Row("MatMul", ((5, 2, 3), (3,))),
    Row("MatMul", ((3,), (5, 3, 2))),
    Row("MatMul", ((5, 2, 3), (3, 4))),
    Row("MatMul", ((2, 5, 2, 3), (3, 4)), opset=21),
    Row("MatMul", ((2, 3), (5, 3, 4))),
    Row("MatMul", ((5, 2, 3), (5, 3, 4))),
    Row("MatMul", ((1, 2, 3), (5, 3, 4))),
    Row("MatMul", ((2, 1, 2, 3), (5, 3, 4))),
    Row("MatMul", ((2, 5, 2, 3), (2, 1, 3, 4)), opset=NEWEST),
    Row("Gemm", ((2, 3), (3, 4)), opset=13),
    Row("Gemm", ((2, 3), (3, 4), (4,)), opset=13),
    Row("Gemm", ((2, 3), (3, 4), (2, 4))),
    Row("Gemm", ((2, 3), (3, 4), (2, 1))),
    Row("Gemm", ((2, 3), (3, 4), (1, 1))),
    Row("Gemm", ((2, 3), (3, 4), ())),
    Row("Gemm", ((3, 2), (3, 4), (4,)), {"transA": 1, "alpha": 0.5}),
    Row("Gemm", ((2, 3), (4, 3), (1, 4)), {"transB": 1, "beta": -2.0}),
    Row("Gemm", ((3, 2), (4, 3), (4,)), {"transA": 1, "transB": 1, "alpha": 3.0}, opset=NEWEST),
    *(
        Row("Einsum", shapes, {"equation": equation}, opset=opset)
        for opset, equation, shapes in [
            (13, "ij,jk->ik", ((2, 3), (3, 4))),
            (13, "ij,jk", ((2, 3), (3, 4))),
            (18, "bij,bjk->bik", ((5, 2, 3), (5, 3, 4))),
            (18, "bij , kj -> bki", ((5, 2, 3), (4, 3))),
            (18, "ij->ji", ((2, 3),)),
            (18, "ij->j", ((2, 3),)),
            (18, "ij->", ((2, 3),)),
            (18, "ii->i", ((3, 3),)),
            (18, "ii->", ((3, 3),)),
            (18, "iji->ji", ((3, 2, 3),)),
            (18, "jii,ik->jk", ((2, 3, 3), (3, 4))),
            (18, "i,i->", ((3,), (3,))),
            (18, "i,j->ij", ((3,), (2,))),
            (18, "ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
            (18, "ijk,k->i", ((2, 3, 4), (4,))),
            (18, "ij,k->k", ((2, 3), (4,))),
            (18, "...ij,...jk->...ik", ((5, 2, 3), (5, 3, 4))),
            (18, "...ij,...jk->...ik", ((2, 1, 2, 3), (1, 5, 3, 4))),
            (18, "...ij,jk", ((5, 2, 3), (3, 4))),
            (18, "...i->...", ((5, 2, 3),)),
            (NEWEST, "bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
        ]
    ),
]


@pytest.mark.share(7, each="row.op")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_product_gradients_agree_with_differences(row: Row, static: bool) -> None:
    check_difference(row, static=static)


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_product_gradients_run_in_float32(row: Row) -> None:
    check_float32(row)


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 2)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (5, 3, 4)),
]


@pytest.mark.parametrize(("x", "y"), SHAPES, ids=str)
def test_matrices_and_vectors_have_the_gradient_of_the_difference_quotient(
    x: tuple[int, ...], y: tuple[int, ...]
) -> None:
    row = Row("MatMul", (x, y))
    check_difference(row, static=True)
    check_opened(row, "x0", "x1")


@pytest.mark.parametrize(
    ("x", "y", "added"),
    [
        ((3,), (3,), ["Mul", "Mul"]),
        ((2, 3), (3, 4), ["Gemm", "Gemm"]),
        ((5, 2, 3), (3, 4), ["Flatten", "Flatten", "Gemm", "Reshape", "Gemm"]),
        ((5, 2, 3), (5, 3, 4), ["Transpose", "MatMul", "Transpose", "MatMul"]),
        ((2, 3), (5, 3, 4), ["Transpose", "MatMul", "Transpose", "MatMul", "ReduceSum"]),
    ],
)
def test_one_matrix_takes_one_product(
    x: tuple[int, ...], y: tuple[int, ...], added: list[str]
) -> None:
    row = Row("MatMul", (x, y))
    assert sorted(operators(row)) == sorted(added)
    products = [node for node in nodes(row) if node.op_type == "Gemm"]
    turned = [
        (n.attributes.get_int("transA", 0), n.attributes.get_int("transB", 0)) for n in products
    ]
    assert turned in ([], [(0, 1), (1, 0)])


@pytest.mark.parametrize("rankless", ["x0", "x1"])
def test_a_product_needs_both_ranks(rankless: str) -> None:
    with pytest.raises(GradientError, match=r"'node'.*ranks of a product's operands"):
        differentiated(Row("MatMul", ((2, 3), (3, 4))), rankless=[rankless])


@pytest.mark.parametrize("turn_x", [0, 1])
@pytest.mark.parametrize("turn_y", [0, 1])
@pytest.mark.parametrize("scales", [{}, {"alpha": 0.5, "beta": -2.0}], ids=str)
@pytest.mark.parametrize("bias", [None, (4,), (2, 1), (2, 4)], ids=str)
def test_a_gemm_gives_back_what_its_attributes_say(
    turn_x: int, turn_y: int, scales: dict[str, float], bias: tuple[int, ...] | None
) -> None:
    x, y = ((3, 2) if turn_x else (2, 3)), ((4, 3) if turn_y else (3, 4))
    more: list[Any] = [] if bias is None else [bias]
    row = Row("Gemm", (x, y, *more), {"transA": turn_x, "transB": turn_y, **scales})
    a, b = row.floats()["x0"], row.floats()["x1"]
    u = np.array([[1.0, 2, -3, 4], [5, 0, 7, -8]])
    alpha, beta = scales.get("alpha", 1), scales.get("beta", 1)
    by_a, by_b = alpha * u @ (b if turn_y else b.T), alpha * (a if turn_x else a.T) @ u
    expected = [by_a.T if turn_x else by_a, by_b.T if turn_y else by_b]
    if bias:
        summed = u.sum(0) if bias == (4,) else u.sum(1, keepdims=True) if bias == (2, 1) else u
        expected.append(beta * summed)
    check_vjp(row, [u], expected)
    assert counts(row)["Mul"] == (bias is not None and beta != 1)
    products = [node for node in nodes(row) if node.op_type == "Gemm"]
    assert len(products) == 2
    turns = [n.attributes.get_int(key, 0) for n in products for key in ("transA", "transB")]
    assert set(turns) <= {0, 1}


def test_a_bias_is_summed_before_it_is_multiplied() -> None:
    row = Row("Gemm", ((2, 3), (3, 4), (4,)), {"beta": 2.0})
    assert operators(row, "x2") == ["ReduceSum", "Mul"]


def test_a_bias_that_is_left_out_has_no_gradient() -> None:
    row = Row("Gemm", ((2, 3), (3, 4), None))
    assert operators(row) == ["Gemm", "Gemm"]


EQUATIONS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk", ((2, 3), (3, 4))),
    ("bij , kj -> bki", ((5, 2, 3), (4, 3))),
    ("ij->", ((2, 3),)),
    ("ijk->j", ((2, 3, 4),)),
    ("ii", ((3, 3),)),
    ("ii->i", ((3, 3),)),
    ("iii->i", ((3, 3, 3),)),
    ("iijj->ji", ((2, 2, 3, 3),)),
    ("iji->ji", ((3, 2, 3),)),
    ("jii,ik->jk", ((2, 3, 3), (3, 4))),
    ("ijk,k->i", ((2, 3, 4), (4,))),
    ("ij,k->k", ((2, 3), (4,))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (1, 5, 3, 4))),
    ("...ij,jk", ((5, 2, 3), (3, 4))),
    ("A...,...B->BA...", ((2, 3), (3, 4))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=str)
def test_an_einsum_has_the_gradient_of_the_difference_quotient(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    row = Row("Einsum", shapes, {"equation": equation})
    check_difference(row, static=True)
    if "..." not in equation:
        check_opened(row, *row.floats())


BROADCAST: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("...ij,...jk->...ik", ((2, 3), (5, 3, 4))),
    ("...i,...i->...", ((5, 2, 3), (2, 3))),
    ("...i,i...->i...", ((5, 2, 3), (3, 2))),
    ("...i,...i,...i->...i", ((1, 2), (1, 2), (5, 2))),
    ("...i,...i,...i->...i", ((5, 2), (1, 2), (1, 2))),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (1, 5, 3, 4))),
]
"""Of an ellipsis that stands for different axes; ONNX Runtime does not take it."""


@pytest.mark.parametrize(("equation", "shapes"), BROADCAST, ids=str)
def test_an_ellipsis_may_stand_for_fewer_or_shorter_axes(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    row = Row("Einsum", shapes, {"equation": equation}, reference=True, kernel=False)
    check_difference(row, static=True)


@pytest.mark.parametrize(
    ("equation", "shapes", "added"),
    [
        ("ij->ij", ((2, 3),), []),
        ("ij->ji", ((2, 3),), ["Einsum"]),
        ("ij,jk->ik", ((2, 3), (3, 4)), ["Einsum", "Einsum"]),
        ("ij->i", ((2, 3),), ["Unsqueeze", "Expand"]),
    ],
)
def test_an_einsum_takes_the_fewest_nodes(
    equation: str, shapes: tuple[tuple[int, ...], ...], added: list[str]
) -> None:
    assert operators(Row("Einsum", shapes, {"equation": equation})) == added


@pytest.mark.parametrize("rankless", ["x0", "x1"])
def test_only_an_ellipsis_needs_ranks(rankless: str) -> None:
    row = Row("Einsum", ((5, 2, 3), (3, 4)), {"equation": "...ij,jk"})
    with pytest.raises(GradientError, match=r"'node'.*ellipsis.*found \.\.\.ij,jk"):
        differentiated(row, rankless=[rankless])
    plain = Row("Einsum", ((2, 3), (3, 4)), {"equation": "ij,jk->ik"})
    assert operators(plain, rankless=[rankless])[0] == "Einsum"
