"""Gradients of what reads at indices: where they go, and how few nodes they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_nodes import check_opened, check_vjp, differentiated, nodes, operators
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    check_difference,
    differentiate,
    forward,
    over,
    spread,
)
from loop_models import model_of

from amp_rewrite.training.grad import Builder, GradientError, IndexedSlices, gradients
from amp_rewrite.training.graph.prepare import prepare

MATRIX = np.array([[0.0, 3, 1, 2], [5, 4, 7, 6], [9, 8, 10, 11]])


def matrix(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return MATRIX.reshape(shape)


def added_at(index: Any, u: Any) -> np.ndarray[Any, Any]:
    """Return zeros like the matrix with numbers added at an index of numpy's."""
    total = np.zeros_like(MATRIX)
    np.add.at(total, index, u)
    return total


@pytest.mark.parametrize("kind", [Constant, Fed])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    ("axis", "indices"),
    [
        (None, [2, 0, 2]),
        (0, [[-1, 1]]),
        (1, [3, 3, 0]),
        (-1, [[1, -4], [1, 2]]),
        (-2, [0, 0, 1]),
        (1, 2),
        (0, -2),
    ],
)
def test_what_is_gathered_goes_back_to_its_index(
    axis: int | None, indices: Any, opset: int, kind: type[Constant | Fed]
) -> None:
    attributes = {} if axis is None else {"axis": axis}
    row = Row("Gather", ((3, 4), kind(indices)), attributes, opset=opset)
    shape = np.take(MATRIX, indices, axis or 0).shape
    u = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    at: Any = np.array(indices)
    if axis in (1, -1):
        check_vjp(row, [u], [added_at((slice(None), at), u)])
    else:
        check_vjp(row, [u], [added_at(at, u)])
    check_opened(row, "x0")


def gathered(axis: int, rank: int | None) -> tuple[Builder, Any]:
    """Return the gradient of a table that a graph is given, and of which it gathers slices."""
    row = Row("Gather", ((3, 4), Fed([2, 0])), {"axis": axis})
    model = forward(row, ir.DataType.FLOAT, static=True)
    x = model.graph.inputs[0]
    if rank is None:
        x.shape = None
    prepare(model)
    b = Builder(model)
    y = model.graph.outputs[0]
    return b, gradients(b, {y: b.ones_like(y)}, [x])[0]


@pytest.mark.parametrize(("axis", "rank"), [(0, 2), (0, None), (-2, 2)])
def test_rows_of_a_table_have_a_sparse_gradient(axis: int, rank: int | None) -> None:
    assert isinstance(gathered(axis, rank)[1], IndexedSlices)


@pytest.mark.parametrize("axis", [1, -1])
def test_other_slices_of_a_table_have_a_dense_gradient(axis: int) -> None:
    assert isinstance(gathered(axis, 2)[1], ir.Value)


@pytest.mark.parametrize("axis", [1, -1])
def test_an_axis_that_is_not_the_first_needs_the_rank(axis: int) -> None:
    with pytest.raises(GradientError, match=r"'node'.*needs the rank of its data.*value_info"):
        gathered(axis, None)


@pytest.mark.parametrize(
    ("index", "pads"), [(0, [0, 0, 0, 4]), (-1, [0, 4, 0, 0]), (3, [0, 3, 0, 1])]
)
@pytest.mark.parametrize("axis", [1, -1])
def test_one_slice_of_what_is_computed_is_padded(index: int, pads: list[int], axis: int) -> None:
    text = f"""(float[3, 5] x) => (float[3] y) <int64 i = {{{index}}}> {{
        h = Sin(x)  y = Gather<axis = {axis}>(h, i) }}"""
    model = model_of(text)
    prepare(model)
    b = Builder(model)
    y = model.graph.outputs[0]
    gradients(b, {y: b.ones_like(y)}, [model.graph.inputs[0]])
    [pad] = [node for node in model.graph if node.op_type == "Pad"]
    assert b.ints(pad.inputs[1]) == pads
    assert not [node for node in model.graph if node.op_type.startswith("Scatter")]


ROWS = [
    *over((13, NEWEST), "GatherElements", ((3, 4), Fed([[0, 1, 2, 2], [0, 0, -1, 2]]))),
    *over((13, 18), "GatherElements", ((3, 4), Constant([[0, 3], [3, -1], [1, 1]])), {"axis": -1}),
    *over((13, 18), "GatherND", ((3, 4, 2), Constant([[[0, 1]], [[2, -1]], [[0, 1]]]))),
    *over((13, 18), "GatherND", ((2, 4, 3), Constant([[[1], [3]], [[0], [0]]])), {"batch_dims": 1}),
    Row("GatherND", ((2, 2, 3), Fed([[[1], [2]], [[0], [0]]])), {"batch_dims": 2}),
    Row("GatherND", ((2, 3, 2, 2), Fed([[[1], [2], [2]], [[0], [0], [1]]])), {"batch_dims": 1}),
    *over((13, 18), "Compress", ((3, 4), Constant([False, True, True])), {"axis": 0}),
    Row("Compress", ((3, 4), Fed([True, False, False, True])), {"axis": -1}),
    *over((13, 18), "Compress", ((3, 4), Fed([True, False, False, True, True]))),
    *over((13, 18), "TopK", ((3, 4), Constant([2])), outputs=2, generate=spread),
    Row("TopK", ((2, 3, 4), Constant([2])), outputs=2, generate=spread),
    Row("TopK", ((3, 4), Fed([2])), {"axis": 0, "largest": 0}, outputs=2, generate=spread),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_at_indices_equals_the_difference_quotient(row: Row) -> None:
    check_difference(row, static=True)
    check_opened(row, "x0")


@pytest.mark.parametrize("row", [
    Row("Compress", ((3, 4), Fed([True, False, True])), {"axis": 0}, opset=13),
    Row("Compress", ((3, 4), Fed([True, False, True])), opset=18),
    Row("TopK", ((3, 4), Constant([2])), outputs=2),
], ids=str)  # fmt: skip
def test_what_no_two_indices_name_is_not_added(row: Row) -> None:
    [scatter] = [node for node in nodes(row) if node.op_type == "ScatterElements"]
    assert scatter.attributes.get_string("reduction", "none") == "none"
    assert "MatMul" not in operators(row)


def test_tuples_of_batches_need_their_rank() -> None:
    row = Row("GatherND", ((2, 4, 3), Fed([[[1], [3]], [[0], [0]]])), {"batch_dims": 1})
    with pytest.raises(GradientError, match=r"'node'.*batch_dims needs the rank of its indices"):
        differentiated(row, rankless=["x1"])
    assert "Range" in operators(row)
    plain = Row("GatherND", ((2, 4, 3), Fed([[1], [0]])))
    assert "Range" not in operators(plain, rankless=["x1"])


def test_tuples_of_batches_have_a_known_length_before_scatters_add() -> None:
    row = Row("GatherND", ((2, 4, 3), Fed([[[1], [3]], [[0], [0]]])), {"batch_dims": 1}, opset=13)
    check_difference(row, static=True)
    with pytest.raises(GradientError, match="length of index tuples has to be known"):
        differentiated(row, opened=["x1"])


@pytest.mark.parametrize(("lengths", "is_known"), [((None, 2, 1), True), ((2, 2, None), False)])
def test_only_the_length_of_tuples_has_to_be_known(
    lengths: tuple[int | None, ...], is_known: bool
) -> None:
    row = Row("GatherND", ((2, 4, 3), Fed([[[1], [3]], [[0], [0]]])), {"batch_dims": 1}, opset=13)
    model = forward(row, ir.DataType.FLOAT, static=True)
    model.graph.inputs[1].shape = ir.Shape(lengths)
    if is_known:
        differentiate(model, ["x0"])
        assert "MatMul" in {node.op_type for node in model.graph}
        return
    with pytest.raises(GradientError, match="length of index tuples has to be known"):
        differentiate(model, ["x0"])
