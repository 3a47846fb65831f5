"""Settings of a session, and diagnoses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sick_steps import BATCH, LARGE, scaled, step

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


def test_settings_are_rates_counters_and_the_loss_scale() -> None:
    with amp.TrainingSession(made()) as session:
        known = session.settings
        session.set("learning_rate/own", 0.0)
        session.set("loss_scale/current_loss_scale", 64)
        session.set("global_step", 7)
        before = session.read_state("w")
        session.run(BATCH)
        found = session.run(BATCH, ["loss_scale", "global_step"])
        np.testing.assert_array_equal(session.read_state("w"), before)
    assert known["learning_rate/own"] == pytest.approx(1e-7)
    assert (known["loss_scale/current_loss_scale"], known["global_step"]) == (32768.0, 0)
    assert (found["loss_scale"], found["global_step"]) == (64.0, 8)


def test_a_checkpoint_keeps_what_was_set(tmp_path: Path) -> None:
    with amp.TrainingSession(step(optimizer=scaled())) as session:
        session.set("learning_rate", 0.25)
        session.set("loss_scale/current_loss_scale", 4)
        session.run(LARGE)
        session.save(tmp_path / "c")
    with amp.TrainingSession(step(optimizer=scaled())) as session:
        session.restore(tmp_path / "c")
        assert session.settings["learning_rate"] == session.learning_rate == 0.25
        assert session.settings["loss_scale/current_loss_scale"] == 2.0
        assert session.settings["loss_scale/skipped_steps"] == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("momentum", 0.8, "constants of a step: save a checkpoint, build the step"),
        ("beta1", 0.8, "is not a number that can be set between steps; expected .*learning_rate;"),
        ("w", 1.0, "use assign_state"),
        ("learning_rate", -1.0, "impossible learning_rate"),
        ("learning_rate", float("nan"), "impossible learning_rate"),
        ("global_step", 1.5, "an integer of at least 0"),
        ("loss_scale/current_loss_scale", 0.0, "impossible loss_scale/current_loss_scale"),
    ],
)
def test_what_cannot_be_set_is_refused(name: str, value: float, message: str) -> None:
    with amp.TrainingSession(step(optimizer=scaled())) as session:
        before = session.state_dict()
        with pytest.raises(OptionError, match=message):
            session.set(name, value)
        after = session.state_dict()
    assert all(np.array_equal(before[state], after[state]) for state in before)
