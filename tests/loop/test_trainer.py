"""The public loop: data of every kind, callbacks, interruptions."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import CLASSIFIER, batch, model_of, train_op

import amp_rewrite as amp
from amp_rewrite import callbacks
from amp_rewrite.errors import (
    AmpError,
    CheckpointError,
    DataError,
    DivergenceError,
    FeedError,
    OptionError,
)
from amp_rewrite.optimizers import SGD
from amp_rewrite.training.session.checkpoint import read_checkpoint

DATA = batch(1, 50)
HELD = batch(2, 20)


def classes(seed: int = 0, size: int = 60) -> dict[str, Any]:
    x = np.random.default_rng(seed).normal(size=(size, 4)).astype(np.float32)
    return {"x": x, "t": x[:, :3].argmax(-1)}


def states(trainer: amp.Trainer) -> dict[str, Any]:
    return trainer.session.state_dict()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(array, other[name]) for name, array in one.items())


def test_a_run_in_one_call(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **DATA)
    history = amp.train(
        train_op(), tmp_path / "data.npz", epochs=3, batch=16, eval=HELD,
        output=tmp_path / "trained.onnx", session={"threads": 1},
    )  # fmt: skip
    assert sorted(history.losses) == list(range(1, 13))
    assert sorted(history.evaluations) == [4, 8, 12]
    assert history.evaluation == history.evaluations[12]
    assert history.stopped is None
    assert (tmp_path / "trained.onnx").exists()


def test_arrays_files_loaders_and_tuples_train_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **DATA)
    inputs = ("x", "t")
    loader = [{name: DATA[name][k : k + 16] for name in inputs} for k in range(0, 50, 16)]
    given = {
        "arrays": DATA,
        "file": str(tmp_path / "data.npz"),
        "batches": loader,
        "tuples": [tuple(feeds[name] for name in inputs) for feeds in loader],
        "a function": lambda: iter(loader),
    }
    found: dict[str, dict[str, Any]] = {}
    for name, data in given.items():
        with amp.Trainer(train_op()) as trainer:
            assert trainer.session.info.inputs == inputs
            trainer.train(data, epochs=2, batch=16, shuffle=False)
            found[name] = states(trainer)
    assert all(same(found["arrays"], other) for other in found.values())


def test_early_stopping_waits_and_says_why() -> None:
    stopping = callbacks.EarlyStopping(patience=2, min_delta=1e9)
    with amp.Trainer(train_op()) as trainer:
        history = trainer.train(DATA, epochs=9, batch=50, eval=HELD, callbacks=[stopping])
    assert sorted(history.losses) == [1, 2, 3]
    assert history.stopped is not None
    assert "eval_loss was not better than" in history.stopped


def test_the_best_model_is_put_back_when_training_ends(tmp_path: Path) -> None:
    """The rate is far too high from the second epoch on; a resumed run goes on from its end."""
    step = SGD(0.01).minimize(amp.value(model_of(CLASSIFIER), "loss"))
    best = callbacks.BestCheckpoint(tmp_path / "best.safetensors", restore=True)
    last = tmp_path / "last.safetensors"

    class Raise(callbacks.Callback):
        def on_epoch(self, run: callbacks.Run) -> None:
            run.session.learning_rate = 1e4

    data: dict[str, Any] = {"data": classes(), "batch": 30, "eval": classes(1), "checkpoint": last}
    with amp.Trainer(step) as trainer:
        history = trainer.train(**data, epochs=3, callbacks=[best, Raise()])
        assert min(history.evaluations, key=lambda k: history.evaluations[k]["eval_loss"]) == 2
        assert trainer.evaluate(classes(1), batch=30) == history.evaluations[2]
        assert read_checkpoint(last).progress["step"] == 6
    best.path.unlink()
    again = callbacks.BestCheckpoint(best.path, restore=True)
    with amp.Trainer(step) as trainer, pytest.raises(CheckpointError, match=r"is gone.*of step 2"):
        trainer.train(**data, epochs=4, callbacks=[again], resume=True)


@pytest.mark.parametrize(("stop", "evaluations"), [(5, 1), (8, 1), (9, 2)])
def test_an_interruption_keeps_the_step_and_what_callbacks_know(
    tmp_path: Path, stop: int, evaluations: int
) -> None:
    """Ctrl-C in the middle of an epoch, and at its end: the rest goes on bit for bit."""
    path = tmp_path / "c.safetensors"

    class Press(callbacks.Callback):
        def on_step(self, run: callbacks.Run) -> None:
            if run.at.step == stop:
                os.kill(os.getpid(), signal.SIGINT)

    def run(*more: callbacks.Callback, **options: Any) -> tuple[Any, dict[str, Any], int]:
        stopping = callbacks.EarlyStopping(patience=3, min_delta=1e9)
        with amp.Trainer(train_op()) as trainer:
            history = trainer.train(
                DATA, epochs=9, batch=16, eval=HELD, callbacks=[stopping, *more],
                checkpoint=path, **options,
            )  # fmt: skip
            return history, states(trainer), stopping.waited

    whole, expected, _ = run()
    path.unlink()
    first, _, waited = run(Press())
    assert first.stopped == "interrupted"
    assert max(first.losses) == stop
    assert waited == evaluations - 1
    assert len(first.evaluations) == evaluations
    second, found, _ = run(resume=True)
    assert second.stopped == whole.stopped
    assert max(second.losses) == max(whole.losses) == 16
    assert same(found, expected)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_is_obeyed_at_once() -> None:
    class Press(callbacks.Callback):
        def on_step(self, run: callbacks.Run) -> None:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    with amp.Trainer(train_op()) as trainer, pytest.raises(KeyboardInterrupt):
        trainer.train(DATA, callbacks=[Press()])


def test_an_open_session_stays_open() -> None:
    with amp.TrainingSession(train_op()) as session:
        with amp.Trainer(session) as trainer:
            trainer.train(DATA, batch=16)
        session.run(batch(0))


WRONG: dict[str, tuple[Any, type[AmpError], str]] = {
    "a shape": ([{"x": np.zeros((4, 7), np.float32), "t": DATA["t"][:4]}], FeedError, "'x' has"),
    "a type": ([{**batch(0), "x": batch(0)["x"] > 0}], FeedError, "'x' has"),
    "a name": ([{"y": DATA["x"], "t": DATA["t"]}], FeedError, "no input 'y'"),
    "a missing name": ([{"x": DATA["x"]}], FeedError, "'t' is not fed"),
    "no data": (None, DataError, "no data"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_found_at_the_first_batch_by_name(case: str) -> None:
    data, kind, message = WRONG[case]
    with amp.Trainer(train_op()) as trainer, pytest.raises(kind, match=message):
        trainer.train(data)


def test_a_loss_that_is_not_finite_ends_training() -> None:
    nan = {**DATA, "x": np.full_like(DATA["x"], np.nan)}
    message = r"x: 200 not finite; leave such examples out"
    with amp.Trainer(train_op()) as trainer, pytest.raises(DivergenceError, match=message):
        trainer.train(nan, batch=50)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "epochs": ({"epochs": 0}, "impossible epochs"),
    "batch": ({"batch": "a"}, "batch must be an integer"),
    "metric": ({"metrics": ["f1"], "eval": HELD}, "unknown metric; found 'f1'; expected accuracy"),
    "metrics alone": ({"metrics": ["accuracy"]}, "need held-out data; found metrics without eval"),
    "callback": ({"callbacks": [print]}, "not a callback"),
    "resume": ({"resume": True}, "nothing to resume from"),
    "monitor": (
        {"eval": HELD, "callbacks": [callbacks.EarlyStopping("eval_f1")]},
        "finds no number of this name.*eval_f1",
    ),
    "early stopping alone": (
        {"callbacks": [callbacks.EarlyStopping()]},
        "EarlyStopping watches evaluations, and there are none; name held-out data",
    ),
    "best checkpoint alone": (
        {"callbacks": [callbacks.BestCheckpoint("best.safetensors")]},
        "BestCheckpoint watches evaluations, and there are none",
    ),
    "checkpoint_every alone": ({"checkpoint_every": 3}, "no checkpoint is kept"),
    "a generator to evaluate": (
        {"eval": iter([HELD])},
        "the held-out data can be read only once.*pass a list of batches, or a function",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_impossible_options(case: str) -> None:
    options, message = OPTIONS[case]
    with amp.Trainer(train_op()) as trainer:
        before = states(trainer)
        with pytest.raises(AmpError, match=message):
            trainer.train(DATA, **options)
        assert same(before, states(trainer)), "nothing was trained"


def test_a_generator_lasts_for_one_epoch() -> None:
    with amp.Trainer(train_op()) as trainer:
        before = states(trainer)
        with pytest.raises(DataError, match="read only once; found 2 epochs; pass a function"):
            trainer.train(iter([DATA]), epochs=2)
        assert same(before, states(trainer))
        assert len(trainer.train(iter([DATA])).losses) == 1


def test_arguments_of_callbacks() -> None:
    with pytest.raises(OptionError, match="impossible patience; found 0"):
        callbacks.EarlyStopping(patience=0)
    with pytest.raises(OptionError, match="unknown mode"):
        callbacks.EarlyStopping(mode="less")
    with pytest.raises(OptionError, match="impossible min_delta"):
        callbacks.EarlyStopping(min_delta=-1)
    with (
        amp.TrainingSession(train_op()) as session,
        pytest.raises(OptionError, match="takes no arguments any more; found emulate"),
    ):
        amp.Trainer(session, emulate=True)


EMPTY: dict[str, Any] = {
    "a list": list,
    "a function": lambda: list,
    "a generator": lambda: iter(()),
    "arrays": lambda: {name: array[:0] for name, array in DATA.items()},
    "a tuple of arrays": lambda: tuple(array[:0] for array in DATA.values()),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_empty_data_are_an_error_that_says_so(kind: str) -> None:
    with amp.Trainer(train_op()) as trainer:
        with pytest.raises(DataError, match="the data hold no examples"):
            trainer.train(EMPTY[kind]())
        with pytest.raises(DataError, match=r"hold no examples|only once"):
            trainer.train(DATA, eval=EMPTY[kind]())
