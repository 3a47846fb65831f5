"""Gradients of a table of which slices are gathered: sparse for rows, dense for others."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
from gradient_table import (
    Fed,
    Row,
    forward,
)

from amp_rewrite.training.grad import Builder, IndexedSlices, gradients
from amp_rewrite.training.graph.prepare import prepare


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
