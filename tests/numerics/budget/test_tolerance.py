"""Tolerances: a metric, its limit, and the loss that outputs have by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances


def loss(metric: str, reference: Any, found: Any, limit: float = 0.1) -> float:
    comparer = Comparer("y", Tolerances.of(FLOAT16))
    comparer.add(np.array(reference, np.float32), np.array(found, np.float32))
    return Tolerance(metric, limit).loss([comparer.result()])


@pytest.mark.parametrize(
    ("metric", "reference", "found", "expected"),
    [
        ("max-relative", [1.0, -4.0], [1.0, -3.0], 0.25),
        ("cosine", [1.0, 0.0], [0.0, 1.0], 1.0),
        ("cosine", [1.0, 1.0], [2.0, 2.0], 0.0),
        ("top1", [[1.0, 2.0], [3.0, 1.0]], [[2.0, 1.0], [3.0, 1.0]], 0.5),
        ("top1", [[1.0], [3.0]], [[2.0], [3.0]], 0.0),
        ("max-relative", [1.0, 2.0], [1.0, math.inf], math.inf),
        ("max-relative", [1.0, math.inf], [1.0, math.inf], 0.0),
        ("cosine", [1.0], [1.0, 2.0], math.inf),
        ("error", [1.0, 2.0, 3.0], [1.0, 2.0, math.nan], math.inf),
    ],
)
def test_metrics(metric: str, reference: Any, found: Any, expected: float) -> None:
    assert loss(metric, reference, found) == pytest.approx(expected, abs=1e-12)


def test_the_error_is_that_of_verify_relative_to_the_spread() -> None:
    numbers = 100 + np.linspace(-1, 1, 1000)
    moved = numbers + np.where(np.arange(1000) % 2, 0.01, -0.01)
    assert loss("error", numbers, moved) == pytest.approx(0.01 / numbers.std(), rel=0.02)


def test_integers_are_compared_by_share() -> None:
    comparer = Comparer("y", Tolerances.of(FLOAT16))
    comparer.add(np.array([1, 2]), np.array([1, 3]))
    assert Tolerance("cosine", 0.0).loss([comparer.result()]) == 0.5


def test_what_is_impossible_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown metric"):
        Tolerance("mse", 0.1)
    with pytest.raises(OptionError, match="impossible tolerance"):
        Tolerance("cosine", -1.0)
