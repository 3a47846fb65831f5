"""Settings of a session, and diagnoses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sick_steps import BATCH, step

import amp_rewrite as amp
from amp_rewrite.errors import FeedError, OptionError
from amp_rewrite.optimizers import (
    SGD,
    CosineSchedule,
    Momentum,
    ParameterGroup,
    ParameterGroups,
)

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


def test_feeds_are_checked_as_in_a_run() -> None:
    with amp.TrainingSession(step()) as session:
        no_mapping: Any = [1]
        with pytest.raises(FeedError, match="must be a mapping"):
            session.diagnose(no_mapping)
        with pytest.raises(FeedError, match="wrong shape"):
            session.diagnose({**BATCH, "x": BATCH["x"][:, :3]})


def test_a_diagnosis_of_the_last_run_begins_where_it_began() -> None:
    with amp.TrainingSession(step(optimizer=SGD(1e30))) as session:
        session.run(BATCH)
        assert session.diagnose(BATCH, last=True).finite
        now = session.diagnose(BATCH).first
    assert now is not None
    assert now.part == "forward"


def made() -> amp.optimizers.TrainOp:
    """Return a step with a group's own schedule, and a loss scale."""
    own = CosineSchedule(1e-7, 100)
    groups = [ParameterGroup(variables="w", name="own", learning_rate=own)]
    rule = ParameterGroups(Momentum(1e-6), groups)
    return step(optimizer=amp.LossScaleOptimizer(rule), accumulate=2)


def test_rates_counters_and_the_loss_scale_are_states() -> None:
    with amp.TrainingSession(made()) as session:
        session.assign_state("learning_rate/own", np.array(0.0))
        session.assign_state("loss_scale/current_loss_scale", np.array(64.0))
        session.assign_state("global_step", np.array(7))
        before = session.read_state("w")
        session.run(BATCH)
        found = session.run(BATCH, ["loss_scale", "global_step"])
        np.testing.assert_array_equal(session.read_state("w"), before)
    assert (found["loss_scale"], found["global_step"]) == (64.0, 8)


@pytest.mark.parametrize("value", [-1.0, float("nan"), "fast"])
def test_an_impossible_learning_rate_is_refused(value: Any) -> None:
    with amp.TrainingSession(step()) as session:
        rate = session.learning_rate
        with pytest.raises(OptionError, match="learning rate"):
            session.learning_rate = value
        assert session.learning_rate == rate
