"""Find what is wrong with one run of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.dtypes import LOW
from amp_rewrite.emulate.low_sums import Sums
from amp_rewrite.loss_scaling.loss_scale import ROLES
from amp_rewrite.trainer.diagnosis.diagnosis import Diagnosis
from amp_rewrite.trainer.diagnosis.first_non_finite import (
    Kind,
    count_all,
    ends_of,
    first_non_finite,
)
from amp_rewrite.trainer.diagnosis.step_values import StepValues
from amp_rewrite.trainer.diagnosis.underflow import underflows
from amp_rewrite.trainer.step.step import Step
from amp_rewrite.trainer.step.step_info import StepInfo

Array = np.ndarray[Any, Any]


def diagnose(
    step: Step, states: Mapping[str, Array], feeds: Mapping[str, Array], sums: Sums
) -> Diagnosis:
    """Run a step once more, on the CPU, and look at every value.

    Args:
        step: With everything that can be fetched; not changed.
        states: State -> its value before the run.
        feeds: Data input -> array.
        sums: How the target adds up in the step's precision; see `emulate_model`.

    Raises:
        RunError: ONNX Runtime cannot run it.
    """
    run = StepValues(step, states, feeds, sums)
    counted, ends = count_all(run), ends_of(run)
    low, scale = LOW.get(step.info.precision), _scale(run.info, states)
    return Diagnosis(
        finite=all(counted[end].kind is Kind.FINITE for end in ends if end in counted),
        first=first_non_finite(run, counted, ends),
        precision=step.info.precision,
        loss_scale=scale,
        layers=() if low is None else underflows(run, low, scale),
    )


def _scale(info: StepInfo, states: Mapping[str, Array]) -> float:
    """Return what the loss is multiplied by."""
    state = info.having(ROLES[0])
    if state is not None:
        return float(states[state.name])
    return float((info.loss_scale or {}).get("config", {}).get("loss_scale_value", 1.0))
