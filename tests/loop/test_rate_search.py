"""Where losses of growing learning rates fall most steeply."""

import numpy as np
import pytest

from amp_rewrite.loop.rate_search import steepest_fall

STEPS = np.arange(100)
FALL = 3 - 2 / (1 + np.exp(-(STEPS - 50) / 4))
"""From 3 to 1, most steeply at step 50."""


def noise(seed: int, size: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=size, size=100)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_middle_of_a_fall_is_found_in_noise(seed: int, scale: float) -> None:
    found = steepest_fall(list((FALL + noise(seed)) * scale))
    assert found is not None
    assert abs(found - 50) <= 6


@pytest.mark.parametrize("seed", range(5))
def test_the_recovery_from_a_spike_is_no_fall(seed: int) -> None:
    spike = 6 * np.exp(-(((STEPS - 75) / 4) ** 2)) - 1.5 * (STEPS > 75)
    found = steepest_fall(list(FALL + spike + noise(seed)))
    assert found is not None
    assert abs(found - 50) <= 6


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_and_a_rise_suggest_nothing(seed: int) -> None:
    assert steepest_fall(list(noise(seed))) is None
    assert steepest_fall(list(STEPS / 50 + noise(seed))) is None


def test_equal_losses_suggest_nothing() -> None:
    assert steepest_fall([2.5] * 10) is None
