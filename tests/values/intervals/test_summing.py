"""Sums, means and extremes along axes and in windows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from interval_models import bounds_of, near

INF = math.inf
MILLION = 1e6 * 4 * 2.0**-23
"""The largest relative error of the mean of a million terms."""


@pytest.mark.parametrize(
    ("node", "opset", "count"),
    [
        ("ReduceSum(x)", 21, 30),
        ("ReduceSum(x, none)", 21, 30),
        ("ReduceSum(x, first)", 21, 2),
        ("ReduceSum(x, last)", 21, 5),
        ("ReduceSum(x, beyond)", 21, None),
        ("ReduceSum(x, before)", 21, None),
        ("ReduceSum(x, a)", 21, None),
        ("ReduceSum<noop_with_empty_axes = 1>(x)", 21, 1),
        ("ReduceSum<noop_with_empty_axes = 1>(x, none)", 21, 1),
        ("ReduceSum(x)", 11, 30),
        ("ReduceSum<axes = [1]>(x)", 11, 3),
        ("ReduceSum<axes = [-1, 0]>(x)", 11, 10),
    ],
)
def test_a_sum_has_as_many_terms_as_its_axes_are_long(
    node: str, opset: int, count: int | None
) -> None:
    constants = """int64[0] none = {}, int64[1] first = {0}, int64[1] last = {-1},
        int64[2] both = {0, 2}, int64[1] front = {-3}, int64[1] beyond = {3},
        int64[1] before = {-4}"""
    found = bounds_of(
        f"y = {node}",
        "float[2,3,5] x, int64[1] a",
        {"x": (1, 2)},
        opset=opset,
        constants=constants,
    )
    expected = (0, INF) if count is None else (count, 2 * count)
    assert found[:2] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ((1, 2), (0, INF)),
        ((0, 2), (0, INF)),
        ((-2, -1), (-INF, 0)),
        ((-2, 0), (-INF, 0)),
        ((-0.5, 2), (-INF, INF)),
        ((-2, 0.5), (-INF, INF)),
    ],
)
def test_without_their_number_the_terms_have_a_sign_alone(x: Any, expected: Any) -> None:
    assert bounds_of("y = ReduceSum(x)", "float[N] x", {"x": x}) == near(expected)


@pytest.mark.parametrize(
    ("operator", "x", "expected"),
    [
        ("ReduceL2", (-3, 2), (0, math.sqrt(27))),
        ("ReduceL2", (1, 2), (math.sqrt(3), math.sqrt(12))),
        ("ReduceSumSquare", (-3, 2), (0, 27)),
        ("ReduceSumSquare", (1, 2), (3, 12)),
        ("ReduceMean", (1, 2), (1, 2)),
    ],
)
def test_reductions_of_three_elements(operator: str, x: Any, expected: Any) -> None:
    body, constants = f"y = {operator}(x, n)", "int64[1] n = {1}"
    found = bounds_of(body, "float[2,3] x", {"x": x}, constants=constants)
    assert found[:2] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("node", "shape", "error"),
    [
        ("ReduceMean(x)", "1000,1000", MILLION),
        ("ReduceMean(x)", "N,3", 1),
        ("ReduceMean(x)", "100000,1000", 1),
        ("GlobalAveragePool(x)", "2,3,1000,1000", MILLION),
        ("GlobalAveragePool(x)", "2,3,1000,N", 1),
        ("GlobalAveragePool(x)", "2,N,2,2", 4e-6 / 2),
        ("AveragePool<kernel_shape = [1000, 1000]>(x)", "1,1,2000,2000", MILLION),
        ("AveragePool<kernel_shape = [2, 2]>(x)", "1,1,4,4", 4e-6 / 2),
    ],
)
def test_a_mean_leaves_its_extremes_by_the_rounding_of_its_sum(
    node: str, shape: str, error: float
) -> None:
    found = bounds_of(f"y = {node}", f"float[{shape}] x", {"x": (1, 2)})
    assert found[:2] == pytest.approx((1 - error, 2 + 2 * error), rel=3e-6)


@pytest.mark.parametrize(
    ("axis", "x", "expected"),
    [
        ("last", (1, 2), (0, 6)),
        ("first", (1, 2), (0, 4)),
        ("two", (1, 2), (0, INF)),
        ("beyond", (1, 2), (0, INF)),
        ("before", (1, 2), (0, INF)),
        ("a", (1, 2), (0, INF)),
        ("a", (-2, -1), (-INF, 0)),
        ("a", (-2, 1), (-INF, INF)),
    ],
)
def test_sums_of_up_to_all_elements_along_an_axis(axis: str, x: Any, expected: Any) -> None:
    constants = """int64 last = {1}, int64 first = {0}, int64 back = {-1}, int64 front = {-2},
        int64[1] single = {1}, int64[2] two = {1, 1}, int64 beyond = {2}, int64 before = {-3}"""
    inputs = "float[2,3] x, int64 a"
    found = bounds_of(f"y = CumSum(x, {axis})", inputs, {"x": x}, constants=constants)
    assert found == pytest.approx((*expected, 0, 0), rel=1e-4)
