"""What a checkpoint keeps of a run is checked when a run goes on from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import batch, train_op

import amp_rewrite as amp
from amp_rewrite.callbacks import BestCheckpoint, EarlyStopping
from amp_rewrite.errors import CheckpointError
from amp_rewrite.loop.epoch_loop import resume
from amp_rewrite.loop.plan_and_progress import Plan, Progress, read_back, stored
from amp_rewrite.training.session.training_session import TrainingSession

PLAN = Plan(epochs=2, batch=16, seed=0, checkpoint="c.safetensors")
STATE = {"best": 0.5, "step": 3, "waited": 1}
STORED = stored(Progress(1, 2, 6), PLAN, {"EarlyStopping 1": STATE})
REMEDY = "; resume from a checkpoint that training has saved"


def test_what_is_stored_is_read_back() -> None:
    found = read_back(STORED, PLAN)
    assert (found.epoch, found.batch, found.step) == (1, 2, 6)
    assert found.callbacks == {"EarlyStopping 1": STATE}
    assert read_back(stored(Progress(), PLAN, {}), PLAN).callbacks == {}


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another kind": ({"epoch": "x"}, "epoch; found 'x'; expected an integer of at least 0"),
    "null": ({"step": None}, "step; found null; expected an integer of at least 0"),
    "true": ({"position": True}, "position; found true; expected an integer of at least 0"),
    "a fraction": ({"step": 1.5}, "step; found 1.5; expected an integer"),
    "below the range": ({"position": -1}, "position; found -1; expected an integer of at least 0"),
    "above the range": ({"epoch": 2**63}, "epoch; found 9223372036854775808; expected"),
    "no switch": ({"shuffle": 1}, "shuffle; found 1; expected true or false"),
    "an unknown key": ({"more": 1}, "more; found 1; expected one of epoch, position, step, batch"),
    "callbacks": ({"callbacks": []}, "callbacks; found a list of 0; expected an object"),
    "a callback": (
        {"callbacks": {"Own 1": 3}},
        r"callbacks\.Own 1; found 3; expected an object",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_training_does_not_store_is_an_error_that_names_file_and_key(case: str) -> None:
    change, message = CHANGES[case]
    with pytest.raises(
        CheckpointError, match=f"^c.safetensors: .* checkpoint: {message}"
    ) as caught:
        read_back(STORED | change, PLAN)
    assert str(caught.value).endswith(REMEDY)


@pytest.mark.parametrize("key", [key for key in STORED if key != "callbacks"])
def test_a_key_that_is_missing_is_named(key: str) -> None:
    left = {name: value for name, value in STORED.items() if name != key}
    with pytest.raises(CheckpointError, match=f"checkpoint: {key}; found nothing; expected"):
        read_back(left, PLAN)


def test_a_checkpoint_that_training_did_not_save_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with TrainingSession(train_op()) as session:
        session.save(path, {"batch": 16, "seed": 0, "shuffle": True})
        with pytest.raises(CheckpointError, match="epoch; found nothing; expected an integer"):
            resume(session, Plan(2, 16, checkpoint=path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "x"}, "step; found 'x'; expected an integer"),
        ({"best": "x"}, "best; found 'x'; expected a number, or null"),
        ({"waited": -1}, "waited; found -1; expected an integer of at least 0"),
    ],
)
def test_the_state_of_a_callback_is_an_error_that_names_it(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "c.safetensors"
    kept = {"EarlyStopping 1": STATE | change}
    with amp.Trainer(train_op()) as trainer:
        plan = Plan(2, 16, checkpoint=path)
        trainer.session.save(path, stored(Progress(1, 0, 4), plan, kept))
        with pytest.raises(CheckpointError, match=f"callback 'EarlyStopping 1': .*: {message}"):
            trainer.train(
                batch(1, 50),
                epochs=2,
                batch=16,
                eval=batch(1, 50),
                callbacks=[EarlyStopping()],
                checkpoint=path,
                resume=True,
            )


def test_a_callback_that_is_new_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    given: dict[str, Any] = {"batch": 16, "eval": batch(1, 50), "checkpoint": path}
    with amp.Trainer(train_op()) as trainer:
        trainer.train(batch(1, 50), epochs=1, **given)
        best = BestCheckpoint(tmp_path / "best.safetensors")
        trainer.train(batch(1, 50), epochs=2, callbacks=[best], resume=True, **given)
        assert best.step == 8


def test_a_place_behind_the_last_batch_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    with amp.Trainer(train_op()) as trainer:
        plan = Plan(2, 16, checkpoint=path)
        trainer.session.save(path, stored(Progress(0, 5, 5), plan, {}))
        with pytest.raises(CheckpointError, match="position; found 5; expected at most 4, the"):
            trainer.train(batch(1, 50), epochs=2, batch=16, checkpoint=path, resume=True)
