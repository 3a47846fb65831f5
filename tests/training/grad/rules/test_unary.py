"""Derivatives of functions of one variable, at kinks too, where they are those from the left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gradient_nodes import check_vjp, operators
from gradient_table import Row

Array = np.ndarray[Any, Any]

POINTS = np.array([-1.75, -0.625, -0.25, 0.375, 1.0, 2.25])
INSIDE = np.array([-0.875, -0.5, 0.125, 0.25, 0.5, 0.75])
KINK = np.array([-2.0, -0.5, 0, 0.5, 1, 3])
GAMMA, ALPHA = 1.0507009873554805, 1.6732632423543772


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def normal(x: Array) -> Array:
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.vectorize(lambda v: (1 + math.erf(v / math.sqrt(2))) / 2)(x) + x * density


def tanh_gelu(x: Array) -> Array:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return (1 + t) / 2 + x * (1 - t**2) * slope / 2


def mish(x: Array) -> Array:
    t = np.tanh(np.log1p(np.exp(x)))
    return t + x * (1 - t**2) * sigmoid(x)


def bent(x: Array, alpha: float, scale: float = 1.0) -> Array:
    """Return the derivative of scale * (x where x > 0 else a exponential of slope alpha at 0)."""
    return scale * np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0)))


CASES: list[tuple[str, dict[str, Any], Array, Any]] = [
    ("Acos", {}, INSIDE, -1 / np.sqrt(1 - INSIDE**2)),
    ("Acosh", {}, 2 + INSIDE, 1 / np.sqrt((2 + INSIDE) ** 2 - 1)),
    ("Asin", {}, INSIDE, 1 / np.sqrt(1 - INSIDE**2)),
    ("Asinh", {}, POINTS, 1 / np.sqrt(POINTS**2 + 1)),
    ("Atan", {}, POINTS, 1 / (1 + POINTS**2)),
    ("Atanh", {}, INSIDE, 1 / (1 - INSIDE**2)),
    ("Celu", {}, KINK, bent(KINK, 1)),
    ("Celu", {"alpha": 2.0}, KINK, np.where(KINK > 0, 1, np.exp(KINK / 2))),
    ("Cos", {}, POINTS, -np.sin(POINTS)),
    ("Cosh", {}, POINTS, np.sinh(POINTS)),
    ("Elu", {}, KINK, bent(KINK, 1)),
    ("Elu", {"alpha": 0.5}, KINK, bent(KINK, 0.5)),
    ("Erf", {}, POINTS, 2 / np.sqrt(np.pi) * np.exp(-(POINTS**2))),
    ("Gelu", {}, POINTS, normal(POINTS)),
    ("Gelu", {"approximate": "tanh"}, POINTS, tanh_gelu(POINTS)),
    ("HardSigmoid", {}, 2 * POINTS, [0, 0.2, 0.2, 0.2, 0.2, 0]),
    ("HardSigmoid", {"alpha": 0.25}, KINK, [0, 0.25, 0.25, 0.25, 0.25, 0]),
    (
        "HardSigmoid",
        {"alpha": 0.5},
        np.array([-1.25, -1, -0.75, 0, 0.75, 1]),
        [0, 0, *[0.5] * 3, 0],
    ),
    (
        "HardSwish",
        {},
        np.array([-4, -3.25, -2.75, 0, 2.75, 3.25]),
        [0, 0, 0.5 - 2.75 / 3, 0.5, 0.5 + 2.75 / 3, 1],
    ),
    ("LeakyRelu", {}, KINK, [0.01, 0.01, 0.01, 1, 1, 1]),
    ("LeakyRelu", {"alpha": 0.25}, KINK, [0.25, 0.25, 0.25, 1, 1, 1]),
    ("Mish", {}, POINTS, mish(POINTS)),
    ("Relu", {}, KINK, [0, 0, 0, 1, 1, 1]),
    ("Selu", {}, KINK, bent(KINK, ALPHA, GAMMA)),
    ("Selu", {"alpha": 0.5, "gamma": 2.0}, KINK, bent(KINK, 0.5, 2)),
    ("Shrink", {}, KINK, [1, 0, 0, 0, 1, 1]),
    ("Shrink", {"lambd": 0.25, "bias": 0.125}, KINK / 2, [1, 0, 0, 0, 1, 1]),
    ("Sigmoid", {}, POINTS, sigmoid(POINTS) * (1 - sigmoid(POINTS))),
    ("Sin", {}, POINTS, np.cos(POINTS)),
    ("Sinh", {}, POINTS, np.cosh(POINTS)),
    ("Softplus", {}, POINTS, sigmoid(POINTS)),
    ("Softsign", {}, POINTS, 1 / (1 + np.abs(POINTS)) ** 2),
    ("Tan", {}, INSIDE, 1 + np.tan(INSIDE) ** 2),
    ("Tanh", {}, POINTS, 1 - np.tanh(POINTS) ** 2),
    ("ThresholdedRelu", {}, KINK, [0, 0, 0, 0, 0, 1]),
    ("ThresholdedRelu", {"alpha": 0.5}, KINK, [0, 0, 0, 0, 1, 1]),
]
U = np.array([1.0, -2, 0.5, 3, -1, 2])


@pytest.mark.parametrize(
    ("op", "attributes", "x", "expected"),
    [pytest.param(*case, id="-".join([case[0], *case[1]])) for case in CASES],
)
def test_a_function_of_one_variable_has_its_derivative(
    op: str, attributes: dict[str, Any], x: Array, expected: Any
) -> None:
    row = Row(op, ((6,),), attributes, opset=20, generate=lambda rng, shape: x)
    check_vjp(row, [U], [U * np.asarray(expected)])


@pytest.mark.parametrize("slope", [(6,), (1,)])
def test_prelu_passes_to_its_slope_where_that_counts(slope: tuple[int, ...]) -> None:
    row = Row("PRelu", ((6,), slope), generate=(lambda r, s: KINK, lambda r, s: np.full(s, 0.25)))
    by_slope = U * KINK * (KINK < 0)
    total = by_slope if slope == (6,) else [by_slope.sum()]
    check_vjp(row, [U], [U * np.where(KINK > 0, 1, 0.25), total])


@pytest.mark.parametrize(
    ("attributes", "added"),
    [
        ({}, ["Sigmoid", "Sub", "Mul", "Add", "Mul"]),
        ({"alpha": 1.0}, ["Sigmoid", "Sub", "Mul", "Add", "Mul"]),
        ({"alpha": 0.5}, ["Mul", "Sigmoid", "Sub", "Mul", "Mul", "Add", "Mul"]),
        ({"alpha": 2.0}, ["Mul", "Sigmoid", "Sub", "Mul", "Mul", "Add", "Mul"]),
    ],
)
def test_swish_is_scaled_only_where_it_has_a_scale(
    attributes: dict[str, Any], added: list[str]
) -> None:
    assert operators(Row("Swish", ((2, 3),), attributes, opset=24, kernel=False)) == added
