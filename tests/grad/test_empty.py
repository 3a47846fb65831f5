"""Axes of length 0: batches without rows, reductions over nothing, indices that name nothing."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    check_difference,
    differentiate,
    forward,
    over,
    runner,
)
from releases import needs

SUMS = ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
WITHOUT_VALUE = ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp"]
SHAPES = [((2, 0), [1]), ((0, 3), [0]), ((2, 0, 3), [1])]
OLD_AND_NEW = (16, 18, NEWEST)
NONE = Fed(np.zeros(0, np.int64))

ROWS = [
    *(Row(op, (shape, Constant(axes))) for op in SUMS for shape, axes in SHAPES),
    *(Row(op, ((0, 3), Constant([1]))) for op in (*SUMS, *WITHOUT_VALUE)),
    *over(OLD_AND_NEW, "ReduceSum", ((2, 0),)),
    *over((16, NEWEST), "CumSum", ((2, 0), Constant(1))),
    *over(OLD_AND_NEW, "Softmax", ((0, 3),)),
    *over(OLD_AND_NEW, "LogSoftmax", ((0, 3),)),
    *over(OLD_AND_NEW, "Relu", ((0, 2),)),
    *over(OLD_AND_NEW, "Concat", ((2, 0), (2, 3)), {"axis": 1}),
    *over(OLD_AND_NEW, "MatMul", ((2, 0), (0, 3))),
    *over(OLD_AND_NEW, "MatMul", ((0, 2), (2, 3))),
    *over(OLD_AND_NEW, "Gemm", ((0, 2), (2, 3), (3,))),
    *over((17, NEWEST), "LayerNormalization", ((0, 4), (4,), (4,))),
    *over((18, NEWEST), "Tile", ((2, 0), Constant([2, 3]))),
    *over(OLD_AND_NEW, "Transpose", ((0, 3),)),
    *over(OLD_AND_NEW, "Pad", ((0, 3), Constant([1, 0, 1, 0]))),
    *over(OLD_AND_NEW, "Slice", ((5, 6), Constant([2]), Constant([2]), Constant([0]))),
    Row("Split", ((3, 2), Constant([0, 3])), outputs=2),
    *over(OLD_AND_NEW, "Gather", ((5, 3), NONE)),
    *over(OLD_AND_NEW, "Gather", ((3, 5, 2), NONE), {"axis": 1}),
    *over(OLD_AND_NEW, "GatherElements", ((3, 4), Fed(np.zeros((0, 4), np.int64)))),
    *over((16, NEWEST), "GatherND", ((3, 4), Fed(np.zeros((0, 1), np.int64)))),
    Row(
        "GatherND",
        ((3, 4), Fed(np.zeros((0, 1), np.int64))),
        opset=16,
        lengths="no scatter adds before opset 16; the product instead takes one index per row",
    ),
    *over(OLD_AND_NEW, "ScatterND", ((4, 3), Fed(np.zeros((0, 1), np.int64)), (0, 3))),
    *over(OLD_AND_NEW, "ScatterElements", ((4, 3), Fed(np.zeros((0, 3), np.int64)), (0, 3))),
]

SUMMED = ("MatMul", "Gemm", "ScatterND", "ScatterElements")
"""Whose gradients are sums over the axes that the run finds, which may be none."""


@pytest.mark.share(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_an_empty_tensor_equals_the_difference_quotient(row: Row):
    check_difference(row, static=True)


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", [row for row in ROWS if not row.lengths], ids=str)
def test_the_gradient_of_an_empty_tensor_needs_no_static_lengths(row: Row):
    if row.op in SUMMED:
        needs("onnxruntime", (1, 30), "sums an empty tensor over no axes up to one number")
    check_difference(row, static=False)


@pytest.mark.share(5, each="op")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", WITHOUT_VALUE)
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_what_has_no_value_over_nothing_has_an_empty_gradient(op, shape, axes, static):
    row = Row(op, (shape, Constant(axes)))
    model = forward(row, ir.DataType.DOUBLE, static=static)
    differentiate(model, ["x0"])
    reduced = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    feeds = {"x0": np.zeros(shape), "u0": np.ones(reduced)}
    [gradient] = runner(model, row, ir.DataType.DOUBLE)(["g_x0"], feeds)
    assert gradient.shape == shape
