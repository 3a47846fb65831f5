from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gradient_nodes import check_opened, check_vjp, counts, nodes, vjp
from gradient_table import (
    NEWEST,
    Constant,
    Fed,
    Row,
    check_difference,
    check_float32,
    normal,
    over,
    positive,
    second_views,
    spread,
)

KINDS = {
    "ReduceSum": normal,
    "ReduceMean": normal,
    "ReduceMax": spread,
    "ReduceMin": spread,
    "ReduceProd": normal,
    "ReduceL1": normal,
    "ReduceL2": normal,
    "ReduceLogSum": positive,
    "ReduceLogSumExp": normal,
    "ReduceSumSquare": normal,
}


def _rows(op: str) -> list[Row]:
    generate = KINDS[op]
    # Until opset 18 only ReduceSum takes its axes as an input.
    old = (
        [Row(op, ((2, 3, 4), Constant([1])), opset=13, generate=generate)]
        if op == "ReduceSum"
        else [
            Row(op, ((2, 3, 4),), {"axes": [1]}, opset=13, generate=generate),
            Row(op, ((2, 3, 4),), {"axes": [-1, 0], "keepdims": 0}, opset=17, generate=generate),
        ]
    )
    return [
        *old,
        Row(op, ((2, 3),), {"keepdims": 0}, opset=13, generate=generate),
        Row(op, ((2, 3),), opset=18, generate=generate),
        Row(op, ((2, 3, 4), Constant([0, 2])), {"keepdims": 0}, opset=18, generate=generate),
        Row(op, ((2, 3, 4), Constant([-2])), opset=21, generate=generate),
        Row(op, ((2, 3, 4), Fed([-1, 0])), {"keepdims": 0}, opset=NEWEST, generate=generate),
        Row(op, ((2, 3, 4), Fed([1])), opset=NEWEST, generate=generate),
        Row(op, ((2, 3), Constant([])), {"noop_with_empty_axes": 1}, generate=generate),
    ]


ROWS = [
    *(row for op in KINDS for row in _rows(op)),
    Row("ReduceSum", ((2, 3),), {"noop_with_empty_axes": 1}),
    Row("ReduceMean", ((3, 1), Constant([1])), note="of one number"),
    Row("ReduceProd", ((2, 3), Constant([1])), generate=lambda r, s: [[0.0, 2, 3], [1, 0, 0]]),
    Row("ReduceProd", ((2, 3),), generate=lambda r, s: [[0.0, 2, 3], [1, 4, 5]], note="one zero"),
    *(
        row
        for exclusive in (0, 1)
        for reverse in (0, 1)
        for row in over(
            (13, 14, NEWEST),
            "CumSum",
            ((3, 4), Constant(1)),
            {"exclusive": exclusive, "reverse": reverse},
        )
    ),
    Row("CumSum", ((3, 4), Fed(-2))),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_gradient_of_a_reduction_equals_the_difference_quotient(row: Row):
    check_difference(row, static=True)


@pytest.mark.share(3, each="row.op")
@pytest.mark.parametrize("row", second_views(ROWS), ids=str)
def test_the_gradient_of_a_reduction_needs_no_static_lengths(row: Row):
    check_difference(row, static=False)


@pytest.mark.share(9, each="row.op")
@pytest.mark.parametrize("row", second_views(row for row in ROWS if row.kernel), ids=str)
def test_the_gradient_of_a_reduction_runs_in_float32(row: Row):
    check_float32(row)


def _of(op: str, x: npt.ArrayLike, *axes: Constant | Fed, **attributes: int) -> Row:
    array = np.asarray(x, np.float64)
    return Row(op, (array.shape, *axes), attributes, generate=lambda rng, shape: array)


X = np.array([[1.0, 3, 3], [-2, 4, 1]])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("ReduceSum", [[2, 2, 2], [6, 6, 6]]),
        ("ReduceMean", [[2 / 3, 2 / 3, 2 / 3], [2, 2, 2]]),
        ("ReduceMax", [[0, 1, 1], [0, 6, 0]]),
        ("ReduceMin", [[2, 0, 0], [6, 0, 0]]),
        ("ReduceProd", [[18, 6, 6], [24, -12, -48]]),
        ("ReduceL1", [[2, 2, 2], [-6, 6, 6]]),
        ("ReduceL2", 2 * X[:1] / 19**0.5),
        ("ReduceSumSquare", [[4, 12, 12], [-24, 48, 12]]),
        ("ReduceLogSum", [[2 / 7, 2 / 7, 2 / 7], [2, 2, 2]]),
        ("ReduceLogSumExp", None),
    ],
)
@pytest.mark.parametrize("kind", [Constant, Fed])
def test_each_row_is_reduced_by_itself(
    op: str, expected: npt.ArrayLike | None, keepdims: int, kind: type[Constant | Fed]
) -> None:
    row = _of(op, X, kind([-1]), keepdims=keepdims)
    u = np.array([[2.0], [6.0]]) if keepdims else np.array([2.0, 6.0])
    numbers = np.array([[2.0], [6.0]]) * np.exp(X) / np.exp(X).sum(1, keepdims=True)
    if op == "ReduceL2":
        expected = np.array([[2.0], [6.0]]) * X / np.sqrt((X**2).sum(1, keepdims=True))
    check_vjp(row, [u], [numbers if expected is None else expected])
    assert counts(row)["Unsqueeze"] in ((0,) if keepdims else (1, 2))


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_reduction_over_all_axes_adds_no_axes(op: str, keepdims: int) -> None:
    row = _of(op, np.abs(X), keepdims=keepdims)
    assert counts(row)["Unsqueeze"] == 0
    check_difference(Row(op, ((2, 3),), row.attributes, generate=KINDS[op]), static=True)


@pytest.mark.parametrize("op", KINDS)
def test_a_reduction_over_no_axis_is_done_to_each_element(op: str) -> None:
    row = Row(op, ((2, 3), None), {"noop_with_empty_axes": 1}, generate=positive)
    u = np.array([[1.0, 2, 3], [-1, -2, -3]])
    found = vjp(row, u)["x0"]
    x = row.floats()["x0"]
    slope = {"ReduceSumSquare": 2 * x, "ReduceLogSum": 1 / x}.get(op, np.ones_like(x))
    np.testing.assert_allclose(found, u * slope, rtol=1e-5)
    assert not {"Unsqueeze", "ReduceSum", "ReduceProd"} & set(counts(row))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([2, 0, 5], [0, 10, 0]),
        ([0, 0, 5], [0, 0, 0]),
        ([2, 3, 5], [15, 10, 6]),
        ([0, 1, 1], [1, 0, 0]),
        ([-1, 1, 0], [0, 0, -1]),
    ],
)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_gradient_of_a_product_is_that_of_the_others(
    x: list[float], expected: list[float], keepdims: int
) -> None:
    check_vjp(_of("ReduceProd", x, keepdims=keepdims), [[3.0] if keepdims else 3.0],
              [3 * np.array(expected)])  # fmt: skip


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_equal_extrema_share_the_gradient(op: str, keepdims: int) -> None:
    sign = 1 if op == "ReduceMax" else -1
    row = _of(op, sign * np.array([[2.0, 2, 0], [3, 1, 3]]), keepdims=keepdims)
    check_vjp(row, [[[8.0]] if keepdims else 8.0], [[[0, 0, 0], [4, 0, 4]]])


@pytest.mark.parametrize("x", [[[0.0, 0], [3, 4]], [[0.0, 0], [0.3, 0.4]]])
def test_the_gradient_of_a_norm_is_0_where_the_norm_is(x: list[list[float]]) -> None:
    row = _of("ReduceL2", x, Constant([1]), keepdims=0)
    check_vjp(row, [[7, 10]], [[[0, 0], [6, 8]]])


MEANS = [
    ((2, 3, 4), Constant([0, 2]), {}),
    ((2, 3, 4), Constant([-1]), {"keepdims": 0}),
    ((2, 3), None, {}),
    ((2, 3), None, {"keepdims": 0}),
    ((2, 3), Constant([]), {"keepdims": 0}),
    ((2, 3), None, {"noop_with_empty_axes": 1}),
    ((3, 1), Constant([1]), {}),
]


@pytest.mark.parametrize(("shape", "axes", "attributes"), MEANS, ids=str)
def test_each_element_of_a_mean_gets_its_share(
    shape: tuple[int, ...], axes: Constant | None, attributes: dict[str, int]
) -> None:
    row = Row("ReduceMean", (shape, axes), attributes)
    assert not {"Div", "Size"} & set(counts(row))
    is_noop = "noop_with_empty_axes" in attributes
    assert ("Div" in counts(row, opened=["x0"])) is not is_noop
    check_difference(row, static=True)
    found = vjp(row)["x0"]
    unknown: dict[str, Any] = {"opened": ["x0"]} if axes else {"rankless": ["x0"]}
    np.testing.assert_allclose(vjp(row, **unknown)["x0"], found, rtol=1e-5)


def test_axes_that_are_fed_are_counted_when_it_runs() -> None:
    row = Row("ReduceMean", ((2, 3, 4), Fed([2, 0])), {"keepdims": 0})
    check_difference(row, static=True)
    check_opened(row, "x0")


@pytest.mark.parametrize("attributes", [
    {}, {"reverse": 1}, {"exclusive": 1}, {"exclusive": 1, "reverse": 1},
])  # fmt: skip
def test_a_running_sum_goes_the_other_way_back(attributes: dict[str, int]) -> None:
    row = Row("CumSum", ((3, 4), Constant(-1)), attributes)
    u = np.arange(12.0).reshape(3, 4) + 1
    back = u if attributes.get("reverse") else u[:, ::-1]
    total = np.cumsum(back, 1) - (back if attributes.get("exclusive") else 0)
    check_vjp(row, [u], [total if attributes.get("reverse") else total[:, ::-1]])
    [node] = nodes(row)
    assert {a.value for a in node.attributes.values()} <= {0, 1}
