"""The rounded weights alone: the yardstick of small numbers, and an excuse."""

from __future__ import annotations

import numpy as np
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.compare.weights_alone import judged


def test_a_control_that_rounds_nothing_is_no_yardstick_of_small_numbers() -> None:
    """So in `check`, where the weights are the same: a number that is small by chance is noise."""
    right = np.array([[0.16, 0.00067, 0.82, 0.23, 0.55, 0.41]])
    small = np.eye(1, 6, 1)
    limits = Tolerances.of(BFLOAT16)
    found, control = (Comparer("y", limits) for _ in range(2))
    found.add(right, right + 0.0017 * small)
    control.add(right, right)
    assert judged(found, control).ok


@pytest.mark.parametrize("length", [64, 384])
def test_small_numbers_of_an_embedding_are_not_judged_where_nothing_was_rounded(
    length: int,
) -> None:
    rng = np.random.default_rng(1)
    right = rng.standard_normal((1, length))
    right[0, 20] = 0.015
    noise = rng.standard_normal((1, length))
    limits = Tolerances.of(FLOAT16)
    found, control = (Comparer("embedding", limits) for _ in range(2))
    found.add(right, right + 2e-3 * noise)
    control.add(right, right)
    assert judged(found, control).ok
