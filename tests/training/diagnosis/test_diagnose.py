"""What underflow takes is told by layers, with the scales between which they live."""

from __future__ import annotations

import numpy as np
import pytest
from sick_steps import BATCH, scaled, step

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.training.diagnosis.diagnosis import Diagnosis

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


_HALF = FLOAT16.smallest_subnormal / 2


def found(loss_scale: float, precision: str = "float16") -> Diagnosis:
    with amp.TrainingSession(step(optimizer=scaled(loss_scale)), precision=precision) as session:
        return session.diagnose(BATCH)


def test_without_a_scale_all_is_lost_and_at_the_one_named_nothing_is() -> None:
    sick = found(1.0)
    (layer,) = sick.losing()
    assert (layer.layer, layer.zeros, layer.lost) == ("first", 1.0, 1.0)
    assert sick.scales is not None
    lives, most = sick.scales
    assert "underflow takes gradients of 1 of 1 layers at loss scale 1" in str(
        sick.underflow_text()
    )
    well = found(lives)
    assert well.losing(0.011) == []
    assert well.scales == (lives, most)
    assert found(lives / 4).losing(0.011)
    assert well.finite


def test_the_largest_scale_is_the_last_at_which_nothing_overflows() -> None:
    with amp.TrainingSession(step(optimizer=scaled(1.0)), precision="float16") as session:
        exact = session.diagnose(BATCH)
        assert exact.scales is not None
        largest = exact.scales[1]
    assert found(largest).finite
    with amp.TrainingSession(step(optimizer=scaled(largest * 2)), precision="float16") as session:
        after = session.diagnose(BATCH)
    assert not after.finite
    assert after.first is not None
    assert after.first.part == "backward"


def test_the_share_that_is_lost_is_that_of_numbers_below_half_the_smallest() -> None:
    """The gradient that arrives at the first layer, computed in float64."""
    x, w = BATCH["x"].astype(np.float64), np.arange(1.0, 9).reshape(4, 2)
    e = np.exp(x @ w)
    arriving = 1024 * 2 / e.size * (e * 1e-5) * 1e-5 * e
    of_weights = np.abs(x.T @ np.where(arriving < _HALF, 0, arriving))
    (layer,) = [layer for layer in found(1024.0).layers if layer.layer == "first"]
    assert layer.lost == max(np.mean(arriving < _HALF), np.mean(of_weights < _HALF))
    assert 0 < layer.lost < 1


def test_float32_has_no_layers_and_bfloat16_loses_nothing() -> None:
    with amp.TrainingSession(step()) as session:
        plain = session.diagnose(BATCH)
    assert (plain.layers, plain.scales, plain.underflow_text()) == ((), None, None)
    assert found(1.0, "bfloat16").losing() == []
