"""A float16 session of a step without a loss scale says that it may not converge."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from low_steps import train_op
from sick_steps import BATCH, LARGE, scaled, step

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning, FetchError
from amp_rewrite.optimizers import SGD

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


def outcomes(made: amp.optimizers.TrainOp, *batches: dict[str, object]) -> list[str]:
    with amp.TrainingSession(made) as session:
        found = [session.run(batch, ["loss", "outcome"]) for batch in batches]
    assert all(list(each) == ["loss", "outcome"] for each in found)
    return [str(each["outcome"]) for each in found]


def test_a_step_without_a_loss_scale_is_always_applied() -> None:
    assert outcomes(step(), BATCH, LARGE) == ["applied", "applied"]


def test_a_skipped_step_says_why() -> None:
    assert outcomes(step(optimizer=scaled()), BATCH, LARGE) == [
        "applied",
        "skipped: a gradient is not finite, at loss scale 32768",
    ]


def test_of_accumulated_batches_it_says_how_many_wait() -> None:
    made = step(optimizer=scaled(), accumulate=2)
    assert outcomes(made, BATCH, BATCH, LARGE, BATCH) == [
        "accumulated: 1 of 2 batches wait for the update",
        "applied: 2 batches",
        "accumulated: 1 of 2 batches wait for the update",
        "skipped: a gradient of one of 2 batches is not finite, at loss scale 32768",
    ]


def test_a_fixed_scale_skips_and_counts_as_a_dynamic_one_does() -> None:
    made = step(optimizer=scaled(128.0))
    with amp.TrainingSession(made) as session:
        before = session.state_dict()
        found = session.run(LARGE, ["grads_finite", "skipped_steps", "loss_scale", "outcome"])
        after = session.state_dict()
    assert (bool(found["grads_finite"]), int(found["skipped_steps"])) == (False, 1)
    assert str(found["outcome"]) == "skipped: a gradient is not finite, at loss scale 128"
    assert found["loss_scale"] == 128.0
    changed = [name for name, array in after.items() if (array != before[name]).any()]
    assert changed == ["loss_scale/skipped_steps", "loss_scale/consecutive_skips"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_unchecked_step_says_so_and_has_no_word_of_finite_gradients(accumulate: int) -> None:
    made = step(optimizer=scaled(amp.UncheckedLossScale(128.0)), accumulate=accumulate)
    assert "grads_finite" not in made.fetches
    counted = "" if accumulate == 1 else ": 2 batches"
    assert outcomes(made, *[LARGE] * accumulate)[-1] == f"applied unchecked{counted}"


def test_the_scale_of_a_checkpoint_does_not_overrule_a_fixed_one(tmp_path: Path) -> None:
    with amp.TrainingSession(step(optimizer=scaled())) as session:
        session.run(LARGE)
        session.save(tmp_path / "c.safetensors")
    with amp.TrainingSession(step(optimizer=scaled(64.0))) as session:
        session.restore(tmp_path / "c.safetensors")
        found = session.run(BATCH, ["loss_scale", "skipped_steps"])
    assert (float(found["loss_scale"]), int(found["skipped_steps"])) == (64.0, 1)


def test_steps_with_one_fixed_scale_are_grouped_and_skip_each_other() -> None:
    made = [step(optimizer=scaled(8.0))]
    loss = made[0].loss
    made.append(scaled(8.0).minimize(loss, var_list="tiny"))
    with amp.TrainingSession(amp.optimizers.group(*made)) as session:
        before = session.state_dict()
        assert str(session.run(LARGE, "outcome")["outcome"]).startswith("skipped")
        after = session.state_dict()
    assert all((after[name] == before[name]).all() for name in ("w", "tiny"))


def test_on_several_shards_it_may_be_another_one() -> None:
    with amp.distributed.shard_context():
        made = step(optimizer=amp.LossScaleOptimizer(amp.CrossShardOptimizer(SGD(1e-6))))
    assert outcomes(made, LARGE)[0].startswith("skipped: a gradient is not finite")


def test_a_value_of_that_name_is_itself() -> None:
    nodes = """
        [small] outcome = Mul (e, tiny)
        [diff] d = Sub (outcome, t)
        [square] s = Mul (d, d)"""
    with amp.TrainingSession(step(nodes)) as session:
        assert session.run(BATCH, "outcome")["outcome"].shape == (8, 2)


def test_evaluation_has_none() -> None:
    with amp.TrainingSession(step()) as session, pytest.raises(FetchError, match="no value"):
        session.evaluate(BATCH, "outcome")
