"""Arithmetic, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interval_models import bounds_of, near
from rewrite_text import needs_opset

from amp_rewrite.values.intervals.interval import Interval

INF = math.inf


@pytest.mark.parametrize(
    ("node", "x", "expected"),
    [
        ("Abs(x)", Interval(-5, 3, 1, 4), Interval(1, 5, 1, 4)),
        ("Neg(x)", Interval(-5, 3, 1, 4), Interval(-3, 5, 1, 4)),
        ("Sum(x)", Interval(-5, 3, 1, 4), Interval(-5, 3, 1, 4)),
        ("Reciprocal(x)", (2, 4), (0.25, 0.5)),
        ("Sub(x, x)", (2, 4), 0),
        ("Mul(x, x)", (-3, 2), (0, 9)),
        ("Mul(x, x)", Interval(-5, 5, 2, 4), Interval(4, 25, 4, 16)),
        ("Sqrt(x)", Interval(4, 9, 4, 9), Interval(2, 3, 2, 3)),
        ("Sqrt(x)", Interval(0, 9, 4, 9), Interval(0, 3, 2, 3)),
        ("Sqrt(x)", (-4, 9), (0, 3)),
        ("Sqrt(x)", (-4, -1), 0),
        ("Sqrt(x)", Interval(-0.5, 0.25, 0, 0.5), (0, 0.5)),
    ],
)
def test_functions_of_one_value(node: str, x: Any, expected: Any) -> None:
    assert bounds_of(f"y = {node}", given={"x": x}) == near(expected)


@pytest.mark.parametrize(
    ("node", "x", "z", "expected"),
    [
        ("Add(x, z)", (1, 2), (3, 5), (4, 7)),
        ("Sub(x, z)", (1, 2), (3, 5), (-4, -1)),
        ("Mul(x, z)", (-3, 2), (-3, 2), (-6, 9)),
        ("Div(x, z)", (6, 8), (2, 4), (1.5, 4)),
        ("Div(x, z)", (2, 4), (6, 8), (0.25, 2 / 3)),
        ("Mean(x, z)", (1, 3), (5, 7), (3, 5)),
        ("Sum(x, z, z)", (1, 2), (3, 5), (7, 12)),
        ("Max(x, z)", (1, 4), (2, 3), (2, 4)),
        ("Max(x, x, z)", (1, 4), (2, 3), (2, 4)),
        ("Min(x, z)", (1, 4), (2, 3), (1, 3)),
        ("Min(x, x, z)", (1, 4), (2, 3), (1, 3)),
    ],
)
def test_functions_of_two_values(node: str, x: Any, z: Any, expected: Any) -> None:
    found = bounds_of(f"y = {node}", "float[2,3] x, float[2,3] z", {"x": x, "z": z})
    assert found == near(expected)


@pytest.mark.parametrize(
    ("exponent", "x", "expected"),
    [
        (2, (-3, 2), (0, 9)),
        (2, Interval(-5, 5, 2, 4), Interval(4, 25, 4, 16)),
        (3, (-3, 2), (-27, 8)),
        (3, Interval(-5, 5, 2, 4), Interval(-125, 125, 8, 64)),
        (0, (-3, 2), 1),
        (0.5, Interval(-4, 9, 1, 9), (0, 3)),
        (0.5, Interval(-0.5, 9, 0, 9), (0, 3)),
        (0.5, (-4, -1), 0),
        (-1, (2, 4), (0.25, 0.5)),
        (-2, (-4, -2), (1 / 16, 0.25)),
        (-0.5, (4, 16), (0.25, 0.5)),
        (-1, (-2, 4), Interval(-INF, INF, 0.25, 0.25)),
    ],
)
def test_powers_with_one_exponent(exponent: float, x: Any, expected: Any) -> None:
    constants = f"float n = {{{float(exponent)}}}"
    assert bounds_of("y = Pow(x, n)", given={"x": x}, constants=constants) == near(expected)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (1, Interval(-2, 3, 1, 3)),
        (0, Interval(-4, 9, 2, 9)),
        ((0, 1), Interval(-4, 9, 1, 1)),
    ],
)
def test_a_choice_is_that_of_its_condition(condition: Any, expected: Interval) -> None:
    given = {"c": condition, "x": Interval(-2, 3, 1, 3), "z": Interval(-4, 9, 2, 9)}
    found = bounds_of("y = Where(c, x, z)", "bool[2] c, float[2] x, float[2] z", given)
    assert found == near(expected)


GRID = np.linspace(-20, 20, 400_001)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("operator", "function"),
    [
        pytest.param("Gelu", lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2, id="Gelu"),
        pytest.param(
            "Gelu",
            lambda x: x * (1 + np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
            id="Gelu by Tanh",
        ),
        pytest.param("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), id="HardSwish"),
        pytest.param("Swish", lambda x: x * sigmoid(x), id="Swish", marks=needs_opset(24)),
    ],
)
def test_a_dent_is_as_deep_as_the_function_has_it(
    operator: str, function: Callable[[Any], Any]
) -> None:
    def found(low: float, high: float) -> Interval:
        opset = 24 if operator == "Swish" else 20
        return bounds_of(f"y = {operator}(x)", given={"x": (low, high)}, opset=opset)

    grid = GRID[(GRID > -3) & (GRID < 0)][::20]
    least = float(function(grid).min())
    for low, high in ((-5, 3), (-0.5, 3), (-5, -2)):
        assert least - 1e-4 < found(low, high).low <= least
        assert found(low, high).high == pytest.approx(max(high, 0), rel=1e-5)
    assert found(0, 3) == near((0, 3))
    assert found(0.5, 3) == near((0, 3))
