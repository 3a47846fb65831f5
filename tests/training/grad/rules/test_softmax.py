from __future__ import annotations

import pytest
from gradient_table import NEWEST, Constant, Fed, Row, check_difference, check_float32, second_views

LABELS = Fed([2, 0, 1, 2])
ROWS = [
    *(
        Row(op, (shape,), attributes, opset=opset)
        for op in ("Softmax", "LogSoftmax")
        for opset, shape, attributes in [
            (13, (2, 3), {}),
            (13, (2, 3, 4), {"axis": 1}),
            (18, (2, 3, 4), {"axis": -2}),
            (NEWEST, (2, 3, 4), {"axis": 0}),
            (18, (3,), {}),
        ]
    ),
    *(
        Row(
            op,
            (shape, labels, *weight),
            {"reduction": reduction, **attributes},
            opset=opset,
            outputs=outputs,
        )
        for op, outputs in (
            ("NegativeLogLikelihoodLoss", 1),
            ("SoftmaxCrossEntropyLoss", 1),
            ("SoftmaxCrossEntropyLoss", 2),
        )
        for reduction in ("mean", "sum", "none")
        for opset, shape, labels, weight, attributes in [
            (13, (4, 3), LABELS, (), {}),
            (18, (4, 3), LABELS, (Constant([0.5, 1.0, 2.0]),), {"ignore_index": 1}),
            (NEWEST, (2, 3, 2), Fed([[2, 0], [-1, 2]]), (), {"ignore_index": -1}),
            (18, (2, 3, 1, 2), Fed([[[2, 0]], [[1, 2]]]), (Constant([0.5, 1.0, 2.0]),), {}),
        ]
    ),
]


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_softmax_gradients_agree_with_differences(row: Row, static: bool) -> None:
    check_difference(row, static=static)


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_softmax_gradients_run_in_float32(row: Row) -> None:
    check_float32(row)
