"""Gradients without an update, in every kind of step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from low_steps import NETWORKS, batch
from onnx import parser
from sick_steps import BATCH, LARGE, scaled, step

import amp_rewrite as amp
from amp_rewrite.errors import FeedError, OptionError
from amp_rewrite.optimizers import (
    SGD,
    Adam,
    CosineSchedule,
    Momentum,
    ParameterGroup,
    ParameterGroups,
    group,
)

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


def gradient() -> np.ndarray[Any, Any]:
    """Return what numpy makes of the gradient of w."""
    x, w = BATCH["x"].astype(np.float64), np.arange(1.0, 9).reshape(4, 2)
    e = np.exp(x @ w)
    return x.T @ (2 / e.size * (e * 1e-5) * 1e-5 * e)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (lambda: step(), {}),
        (lambda: step(optimizer=scaled(1024.0)), {}),
        (lambda: step(optimizer=scaled()), {"precision": "float16", "emulate": True}),
        (lambda: step(accumulate=3), {}),
        (lambda: step(optimizer=SGD(0.1, global_clipnorm=1e-9)), {}),
    ],
)
def test_gradients_are_those_of_the_loss(made: Any, options: Any) -> None:
    with amp.TrainingSession(made(), **options) as session:
        session.run(BATCH)
        before = session.state_dict()
        found = session.gradients(BATCH)
        after = session.state_dict()
        assert session.gradients(BATCH)["w"].tobytes() == found["w"].tobytes()
    assert list(found) == ["w"]
    np.testing.assert_allclose(found["w"], gradient(), rtol=0.03 if options else 1e-3, atol=1e-10)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_gradient_of_a_table_is_dense() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (int64[N] x) => (float loss) <float[3, 2] table = {1, 2, 3, 4, 5, 6}> {
            rows = Gather (table, x)
            s = Mul (rows, rows)
            loss = ReduceSum <keepdims = 0> (s)
        }"""
    model = amp.load(parser.parse_model(text))
    with amp.TrainingSession(SGD(0.1).minimize(amp.value(model, "loss"))) as session:
        found = session.gradients({"x": np.array([2, 0, 2])})
    np.testing.assert_array_equal(found["table"], [[2, 4], [0, 0], [20, 24]])


def test_a_step_of_two_backward_passes_does_not_say_which_gradients_it_has() -> None:
    model = step().graph.source
    loss = amp.value(model, "loss")
    both = group(
        SGD(0.1).minimize(loss, var_list="w"), Adam(0.1).minimize(loss * loss, var_list="tiny")
    )
    with amp.TrainingSession(both) as session, pytest.raises(OptionError, match="several backward"):
        session.gradients(BATCH)


def test_feeds_are_checked_as_in_a_run() -> None:
    with amp.TrainingSession(step()) as session:
        no_mapping: Any = [1]
        for look in (session.gradients, session.diagnose):
            with pytest.raises(FeedError, match="must be a mapping"):
                look(no_mapping)
            with pytest.raises(FeedError, match="wrong shape"):
                look({**BATCH, "x": BATCH["x"][:, :3]})
        with pytest.raises(FeedError, match="not fed"):
            session.gradients({"x": BATCH["x"]})


def test_a_diagnosis_of_the_last_run_begins_where_it_began() -> None:
    with amp.TrainingSession(step(optimizer=SGD(1e30))) as session:
        session.run(BATCH)
        assert session.diagnose(BATCH, last=True).finite
        now = session.diagnose(BATCH).first
    assert now is not None
    assert now.part == "forward"


def test_gradients_leave_running_statistics_as_they_are() -> None:
    loss = amp.value(amp.load(NETWORKS["cnn"]()), "loss")
    with amp.TrainingSession(SGD(0.1).minimize(loss)) as session:
        before = session.state_dict()
        session.gradients(batch("cnn"))
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)


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
