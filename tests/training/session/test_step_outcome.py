"""A float16 session of a step without a loss scale says that it may not converge."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from low_steps import train_op

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning

TEXT = "a float16 step without a loss scale may not converge: gradients below 6e-08 become zero"


def warned_of(op: Any, precision: Any) -> list[str]:
    """Return what a new session warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        amp.TrainingSession(op, precision=precision, emulate=True)
    return [str(warning.message) for warning in found]


def test_a_float16_session_without_a_loss_scale_warns_once() -> None:
    op = train_op("mlp")
    with pytest.warns(AmpWarning, match=TEXT):
        amp.TrainingSession(op, precision="float16", emulate=True)
    assert warned_of(op, "float16") == []


def test_a_step_file_of_float16_without_a_loss_scale_warns_too() -> None:
    made = amp.build_step(train_op("mlp"), precision="float16")
    with pytest.warns(AmpWarning, match=TEXT):
        amp.TrainingSession(made, emulate=True)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_precisions_need_no_loss_scale(precision: str) -> None:
    assert warned_of(train_op("mlp"), precision) == []


@pytest.mark.parametrize("scale", ["dynamic", 128.0])
def test_a_loss_scale_of_any_kind_is_one(scale: object) -> None:
    loss = train_op("mlp").graph.value("loss")
    op = amp.LossScaleOptimizer(amp.optimizers.Adam(), scale).minimize(loss)
    assert warned_of(op, "float16") == []
