"""Gradients of a table of which slices are gathered: sparse for rows, dense for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_nodes import check_opened, check_vjp
from gradient_table import (
    Constant,
    Fed,
    Row,
    check_difference,
    forward,
)

from amp_rewrite.grad import Builder, GradientError, IndexedSlices, gradients
from amp_rewrite.grad.prepare import prepare


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


def scatter(op: str, x: list[float], u: list[float], at: list[int], reduction: str) -> Row:
    indices = np.array(at) if op == "ScatterElements" else np.array(at)[:, None]
    made = (lambda r, s: np.array(x), lambda r, s: s, lambda r, s: np.array(u))
    return Row(
        op,
        ((len(x),), Fed(indices), (len(u),)),
        {} if reduction == "none" else {"reduction": reduction},
        generate=made,
    )


G = [6.0, 1.0, 4.0]
CASES: list[tuple[str, list[float], list[float], list[int], list[float], list[float]]] = [
    ("none", [1, 2, 3], [4, 5], [2, 0], [0, 1, 0], [4, 6]),
    ("none", [1, 2, 3], [4], [-2], [6, 0, 4], [1]),
    ("add", [1, 2, 3], [4, 5, 6], [2, 0, 2], G, [4, 6, 4]),
    ("mul", [2, 3, 5], [4, 7], [0, 0], [168, 1, 4], [84, 48]),
    ("mul", [2, 3, 5], [0, 7], [0, 0], [0, 1, 4], [84, 0]),
    ("mul", [2, 3, 5], [0, 0], [0, 0], [0, 1, 4], [0, 0]),
    ("mul", [0, 3, 5], [4, 7], [0, 0], [168, 1, 4], [0, 0]),
    ("mul", [2, 3, 5], [0, 7], [0, 2], [0, 1, 28], [12, 20]),
    ("max", [1, 2, 3], [4, 4, 1], [0, 0, 2], [0, 1, 4], [3, 3, 0]),
    ("max", [4, 2, 3], [4, 4, 3], [0, 0, 2], [2, 1, 2], [2, 2, 2]),
    ("min", [1, 2, 3], [4, 4, 1], [0, 0, 2], [6, 1, 0], [0, 0, 4]),
    ("min", [4, 2, 3], [4, 4, 3], [0, 0, 2], [2, 1, 2], [2, 2, 2]),
]


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize(("reduction", "x", "u", "at", "by_x", "by_u"), CASES)
def test_what_is_written_gets_the_gradient_of_its_place(
    op: str,
    reduction: str,
    x: list[float],
    u: list[float],
    at: list[int],
    by_x: list[float],
    by_u: list[float],
) -> None:
    row = scatter(op, x, u, at, reduction)
    check_vjp(row, [G], [by_x, by_u])
    check_opened(row, "x0", "x2")


@pytest.mark.parametrize("opset", [16, 18])
@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": 1}, {"axis": -1}], ids=str)
def test_elements_are_written_along_an_axis(attributes: dict[str, int], opset: int) -> None:
    indices = Constant([[0, 2], [1, 0]])
    row = Row("ScatterElements", ((3, 4), indices, (2, 2)), attributes, opset=opset)
    check_difference(row, static=True)


@pytest.mark.parametrize("opset", [16, 18])
def test_rows_are_written(opset: int) -> None:
    row = Row("ScatterND", ((4, 3), Constant([[1], [3]]), (2, 3)), opset=opset)
    check_difference(row, static=True)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_another_reduction_is_refused_by_name(op: str) -> None:
    model = forward(
        scatter(op, [1, 2, 3], [4, 5], [2, 0], "average"), ir.DataType.FLOAT, static=True
    )
    b = Builder(model)
    y, x = model.graph.outputs[0], model.graph.inputs[0]
    y.type, y.shape = x.type, x.shape
    with pytest.raises(GradientError, match=r"'node'.*without a gradient.*found average; expected"):
        gradients(b, {y: b.ones_like(y)}, [x])
