"""The loop over steps that accumulate gradients, on one shard and on several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import FORWARD, batch, model_of
from thread_shards import on_threads

import amp_rewrite as amp
from amp_rewrite import callbacks
from amp_rewrite.errors import CheckpointError
from amp_rewrite.optimizers import Adam
from amp_rewrite.training.session.checkpoint import read_checkpoint

BATCH = 4
HELD = batch(2, 8)
States = dict[str, np.ndarray[Any, Any]]


def step(accumulate: int, *, shards: bool = False) -> Any:
    """Return a step; one for shards as it is in a file."""
    optimizer: Any = Adam(0.05)
    with amp.distributed.shard_context():
        if shards:
            optimizer = amp.CrossShardOptimizer(optimizer)
        made = optimizer.minimize(amp.value(model_of(FORWARD), "loss"), accumulate=accumulate)
        return amp.build_step(made) if shards else made


class StopAt(callbacks.Callback):
    """Ends the run at a step, of one shard or of the only one."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, run: callbacks.Run) -> None:
        if run.at.step == self.at:
            run.stop("told")


class Waiting(callbacks.Callback):
    """Keeps how many batches waited for an update after each step."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def on_step(self, run: callbacks.Run) -> None:
        self.found.append(run.session.waiting)


def trained(
    accumulate: int, batches: int, *more: callbacks.Callback, shards: Any = None, **options: Any
) -> tuple[Any, States]:
    """Train for two epochs of some batches; return the history and the states."""
    data: Any = batch(1, BATCH * batches)
    plan = {"epochs": 2, "batch": BATCH, **options}
    made = step(accumulate, shards=shards is not None)
    with amp.Trainer(made, shards=shards, threads=1) as trainer:
        given = data if shards is None else shards.data(data)
        history = trainer.train(given, callbacks=more, **plan)
        assert trainer.session.waiting == 0
        return history, trainer.session.state_dict()


def runs(shards: int, program: Any) -> list[Any]:
    """Run a program on so many shards, or without any."""
    return [program(None)] if shards == 1 else on_threads(shards, program)


@pytest.mark.share(11, each="batches")
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    ("accumulate", "batches"), [(4, 3), (3, 4), (2, 5), (3, 3), (3, 1), (4, 6)]
)
def test_the_last_update_of_an_epoch_is_of_the_batches_that_are_left(
    accumulate: int, batches: int, shards: int
) -> None:
    """It does what a large batch of all of them does; nothing is left for the next epoch."""
    large = {"batch": BATCH * accumulate, "shuffle": False}
    _, expected = trained(1, batches, **large)

    def program(group: Any) -> tuple[Any, States, list[int]]:
        waiting = Waiting()
        found = trained(accumulate, batches, waiting, shards=group, shuffle=False)
        return *found, waiting.found

    for history, found, waiting in runs(shards, program):
        assert len(history.losses) == 2 * batches
        assert found["global_step"] == expected["global_step"] == 2 * -(-batches // accumulate)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        turns = [(step + 1) % accumulate for step in range(batches - 1)]
        assert waiting == [*turns, 0] * 2


@pytest.mark.share(7, each="stop")
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("stop", [1, 4, 5, 7])
def test_a_run_that_is_stopped_ends_after_its_update_and_goes_on_bit_for_bit(
    tmp_path: Path, stop: int, shards: int
) -> None:
    """One shard alone is told to stop; all end, with one checkpoint."""
    path = tmp_path / "c.safetensors"

    def program(group: Any) -> Any:
        told = [StopAt(stop)] if group is None or group.rank == 1 else []
        save = {"checkpoint": path, "checkpoint_every": 2}
        whole = trained(3, 5, shards=group)[1]
        first, _ = trained(3, 5, *told, shards=group, **save)
        writes = group is None or group.is_first
        at = read_checkpoint(path).progress["step"] if writes else max(first.losses)
        second, found = trained(3, 5, shards=group, resume=True, **save)
        return whole, found, (max(first.losses), at, first.stopped, max(second.losses))

    for whole, found, told in runs(shards, program):
        end = next(step for step in (3, 5, 8, 10) if step >= stop)
        assert told == (end, end, "told", 10)
        for name, array in whole.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("shards", [1, 2])
def test_checkpoints_wait_for_the_end_of_the_update(tmp_path: Path, shards: int) -> None:
    def program(group: Any) -> Any:
        class Saved(callbacks.Callback):
            def __init__(self) -> None:
                self.steps: set[int] = set()

            def on_step(self, run: callbacks.Run) -> None:
                if group is None and path.exists():
                    self.steps.add(read_checkpoint(path).progress["step"])

        path, saved = tmp_path / "every.safetensors", Saved()
        best = callbacks.BestCheckpoint(tmp_path / "best.safetensors")
        held = HELD if group is None else group.held_out(HELD)
        often = {"eval": held, "checkpoint": path, "checkpoint_every": 4}
        history, _ = trained(3, 5, best, saved, shards=group, **often)
        return sorted(history.evaluations), saved.steps, best.step

    for evaluations, saved, best in runs(shards, program):
        assert evaluations == [5, 10]
        assert saved == (set() if shards == 2 else {5, 8})
        assert read_checkpoint(tmp_path / "best.safetensors").progress["step"] == best


def test_what_waits_in_a_checkpoint_is_refused_by_shards(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with amp.TrainingSession(step(3, shards=True), threads=1) as session:
        session.run(batch(0, 4))
        assert session.waiting == 1
        session.save(path)

    def program(group: Any) -> None:
        with amp.TrainingSession(step(3, shards=True), shards=group) as session:
            with pytest.raises(CheckpointError, match=r"wait for an update.*found 1 of 3 batches"):
                session.restore(path)
            assert session.waiting == 0

    on_threads(2, program)
