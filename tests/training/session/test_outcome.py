"""The fetch "outcome" says what became of a step."""

from __future__ import annotations

import pytest
from sick_steps import BATCH, LARGE, scaled, step

import amp_rewrite as amp
from amp_rewrite.errors import FetchError
from amp_rewrite.optimizers import SGD


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
