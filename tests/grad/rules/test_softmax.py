from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_nodes import check_vjp
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    forward,
    runner,
)

from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.prepare import prepare

LABELS = Fed([2, 0, 1, 2])
ROWS = [
    *(
        Row(op, (shape,), attributes, opset=opset)
        for op in ("Softmax", "LogSoftmax")
        for opset, shape, attributes in [
            (16, (2, 3), {}),
            (16, (2, 3, 4), {"axis": 1}),
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
            (16, (4, 3), LABELS, (), {}),
            (18, (4, 3), LABELS, (Constant([0.5, 1.0, 2.0]),), {"ignore_index": 1}),
            (NEWEST, (2, 3, 2), Fed([[2, 0], [-1, 2]]), (), {"ignore_index": -1}),
            (18, (2, 3, 1, 2), Fed([[[2, 0]], [[1, 2]]]), (Constant([0.5, 1.0, 2.0]),), {}),
        ]
    ),
]


X = np.array([[1.0, 2, -1], [0, 0, 3], [-2, 1, 0.5]])
CLASSES, WEIGHTS = np.array([2, 0, 1]), np.array([0.5, 1.0, 4.0])


def probabilities(x: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", [None, "mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [None, 0, 1, -7])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_has_the_gradient_of_its_attributes(
    op: str, reduction: str | None, ignored: int | None, weighted: bool
) -> None:
    shares = WEIGHTS[CLASSES] if weighted else np.ones(3)
    if ignored is not None:
        shares = shares * (ignored != CLASSES)
    u = np.array([1.0, -2, 3]) if reduction == "none" else np.array(2.0)
    given = u * shares / (shares.sum() if reduction in (None, "mean") else 1)
    at = np.eye(3)[CLASSES]
    slope = probabilities(X, 1) - at if op.startswith("Softmax") else -at
    attributes: dict[str, Any] = {} if reduction is None else {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
    weight = [Constant(WEIGHTS)] if weighted else []
    row = Row(op, ((3, 3), Fed(CLASSES), *weight), attributes, generate=lambda r, s: X)
    check_vjp(row, [u], [given[:, None] * slope])


def by_log_probabilities(seeded: list[int]) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the operators and the result of the gradient of a loss by some of its outputs."""
    row = Row(
        *("SoftmaxCrossEntropyLoss", ((3, 3), Fed(CLASSES))),
        outputs=2,
        generate=lambda r, s: X,
    )
    model = forward(row, ir.DataType.FLOAT, static=True)
    prepare(model)
    b, outputs = Builder(model), model.graph.outputs
    seeds = {outputs[k]: b.ones_like(outputs[k]) for k in seeded}
    [found] = gradients(b, seeds, [model.graph.inputs[0]])
    assert isinstance(found, ir.Value)
    made = [n.op_type for n in model.graph if (n.name or "").startswith("gradient/")]
    found.name = "g"
    model.graph.outputs.append(found)
    feeds = {"x0": X.astype(np.float32), "x1": CLASSES}
    return made, runner(model, row, ir.DataType.FLOAT)(["g"], feeds)[0]


def test_what_arrives_at_either_output_of_a_loss_counts() -> None:
    p = probabilities(X, 1)
    by_loss, by_log = (p - np.eye(3)[CLASSES]) / 3, 1 - 3 * p
    for seeded, expected in (([0], by_loss), ([1], by_log), ([0, 1], by_loss + by_log)):
        made, found = by_log_probabilities(seeded)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert ("ScatterElements" in made) is (0 in seeded)
        assert made.count("Add") == (len(seeded) == 2)
