"""Gradients of arithmetic at ties, bounds and zeros, and how few nodes they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gradient_nodes import check_vjp, counts
from gradient_table import Generator, Row


def of(*numbers: npt.ArrayLike) -> list[Generator]:
    """Return makers of float inputs that have these numbers."""
    return [lambda rng, shape, x=x: np.asarray(x, np.float64) for x in numbers]


def test_the_gradients_of_a_power_are_numbers_where_logarithms_are_not() -> None:
    x, p = np.array([-0.5, 0, 0.5, 2, 0, 0, 4]), np.array([2.0, 2, 2, 3, 0, 1, 0])
    row = Row("Pow", ((7,), (7,)), generate=of(x, p))
    by_x = [-1, 0, 1, 12, 0, 1, 0]
    by_p = [0, 0, 0.25 * np.log(0.5), 8 * np.log(2), 0, 0, np.log(4)]
    check_vjp(row, [np.ones(7)], [by_x, by_p])


@pytest.mark.parametrize(
    ("op", "function"), [("Max", np.maximum.reduce), ("Min", np.minimum.reduce)]
)
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_equal_extrema_share_the_gradient(op: str, function: Any, inputs: int) -> None:
    numbers = np.array([[1.0, 2, 3, 4], [1.0, 5, -1, 4], [1.0, 5, 3, 0]])[:inputs]
    row = Row(op, ((4,),) * inputs, generate=of(*numbers))
    u = np.array([6.0, 4, 2, 8])
    equal = numbers == function(numbers)
    check_vjp(row, [u], [*(equal * u / equal.sum(0))])
    added = counts(row)
    assert not (inputs == 1 and added)
    assert added["Add"] == (inputs == 2)
    assert added["Sum"] == (inputs == 3)


X, U = np.array([-2.0, -1, 0, 1, 2]), np.array([1.0, 2, 4, 8, 16])


@pytest.mark.parametrize(
    ("bounds", "numbers", "expected"),
    [
        (((), ()), (-1, 1), [[0, 2, 4, 8, 0], 1, 16]),
        (((),), (-1,), [[0, 2, 4, 8, 16], 1]),
        ((None, ()), (0, 1), [[1, 2, 4, 8, 0], 16]),
        (((), ()), (0, 0), [[0, 0, 4, 0, 0], 3, 24]),
        (((), ()), (3, 0.5), [[0, 0, 0, 0, 0], 0, 31]),
        (((), ()), (3, 1), [[0, 0, 0, 0, 0], 0, 31]),
        ((), (), [U]),
    ],
)
def test_clip_passes_to_what_its_result_is(
    bounds: tuple[Any, ...], numbers: tuple[float, ...], expected: list[Any]
) -> None:
    check_vjp(Row("Clip", ((5,), *bounds), generate=of(X, *numbers)), [U], expected)
