from __future__ import annotations

import pytest
from gradient_table import NEWEST, Row, check_difference

ROWS = [
    Row("MatMul", ((2, 3), (3, 4)), opset=16),
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
    Row("Gemm", ((2, 3), (3, 4)), opset=16),
    Row("Gemm", ((2, 3), (3, 4), (4,)), opset=16),
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
            (16, "ij,jk->ik", ((2, 3), (3, 4))),
            (16, "ij,jk", ((2, 3), (3, 4))),
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
