"""Functions of one variable end where the function does."""

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
GRID = np.linspace(-20, 20, 400_001)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("node", "x", "expected"),
    [
        ("Atan(x)", (-1, 2), (math.atan(-1), math.atan(2))),
        ("Exp(x)", (-1, 2), (math.exp(-1), math.exp(2))),
        ("Exp(x)", (-INF, 1e6), (0, INF)),
        ("Log(x)", (0.5, 2), (math.log(0.5), math.log(2))),
        ("Log(x)", (0, 2), (-INF, math.log(2))),
        ("Sigmoid(x)", (-1, 2), (sigmoid(-1), sigmoid(2))),
        ("Sigmoid(x)", (-800, 0), (0, 0.5)),
        ("Softplus(x)", (-1, 2), (math.log1p(math.exp(-1)), 2 + math.log1p(math.exp(-2)))),
        ("Softplus(x)", (-INF, INF), (0, INF)),
    ],
)
def test_what_only_grows_is_bounded_by_its_values_at_the_ends(
    node: str, x: Any, expected: Any
) -> None:
    assert bounds_of(f"y = {node}", given={"x": x}) == near(expected)


@pytest.mark.parametrize(
    ("node", "x", "expected"),
    [
        ("Relu(x)", (-4, 3), (0, 3)),
        ("Relu(x)", (1, 3), (1, 3)),
        ("LeakyRelu(x)", (-4, 3), (-0.04, 3)),
        ("LeakyRelu<alpha = 0.5>(x)", (1, 3), (1, 3)),
        ("LeakyRelu<alpha = 0.5>(x)", (-4, -2), (-2, -1)),
        ("LeakyRelu<alpha = 0.5>(x)", (-4, -0.5), (-2, -0.25)),
        ("LeakyRelu<alpha = 0.5>(x)", (-0.5, 3), (-0.25, 3)),
        ("LeakyRelu<alpha = 0.5>(x)", Interval(0, 3, 0, 3), Interval(0, 3, 0, 3)),
        ("LeakyRelu<alpha = 0.5>(x)", Interval(-4, 3, 2, 4), (-2, 3)),
        ("Elu(x)", (-5, 3), (-1, 3)),
        ("Elu<alpha = 2.0>(x)", (-5, 3), (-2, 3)),
        ("Elu<alpha = 2.0>(x)", (-0.5, 3), (-2, 3)),
        ("HardSigmoid(x)", (-5, 1), (0, 0.7)),
        ("HardSigmoid(x)", (-1, 9), (0.3, 1)),
        ("HardSigmoid<alpha = 0.5, beta = 0.25>(x)", (-0.25, 0.5), (0.125, 0.5)),
    ],
)
def test_what_is_bent(node: str, x: Any, expected: Any) -> None:
    assert bounds_of(f"y = {node}", given={"x": x}) == near(expected)


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


@needs_opset(24)
def test_the_slope_of_a_swish_is_an_attribute() -> None:
    found = bounds_of("y = Swish<alpha = 2.0>(x)", given={"x": (-5, 3)}, opset=24)
    assert found.low == pytest.approx(-0.27847 / 2, rel=1e-5)
