"""Runs as event files of TensorBoard: what is in them, when runs resume, and wrong arguments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_files import scalars
from handmade import CLASSIFIER
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.loop.tensorboard import TensorBoard

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* on a CPU is slower:amp_rewrite.errors.AmpWarning"
)


def examples(count: int = 40, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 3, count)
    x = (rng.normal(size=(count, 4)) + t[:, None]).astype(np.float32)
    return {"x": x, "t": t}


def loss() -> Any:
    return amp.value(amp.load(parser.parse_model(CLASSIFIER)), "loss")


def step(**how: Any) -> Any:
    return amp.LossScaleOptimizer(amp.optimizers.Adam(0.01)).minimize(loss(), **how)


def trained(
    folder: Path, data: dict[str, Any] | None = None, *, precision: str = "float16", **options: Any
) -> None:
    """Train a classifier with a loss scale and event files; 5 steps an epoch of 40 examples."""
    given = {"epochs": 2, "batch": 8, "eval": examples(12, 1), **options}
    callback = TensorBoard(folder)
    with amp.Trainer(step(), precision=precision, emulate=precision != "float32") as trainer:
        data = examples() if data is None else data
        trainer.train(data, **{**given, "callbacks": [callback, *options.get("callbacks", ())]})


class Rows(Callback):
    """Keeps what steps computed."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []

    def fetches(self, run: Run) -> list[str]:
        return ["gradient_norm"]

    def on_step(self, run: Run) -> None:
        self.losses.append(run.at.loss)
        self.norms.append(float(run.at.fetched["gradient_norm"]))


def numbers(curve: list[tuple[int, float]]) -> list[float]:
    return [number for _, number in curve]


def test_the_files_have_what_the_run_measured(tmp_path: Path) -> None:
    rows = Rows()
    trained(tmp_path, callbacks=[rows])
    curves = scalars(tmp_path)
    assert [at for at, _ in curves["training/loss"]] == list(range(1, 11))
    np.testing.assert_allclose(numbers(curves["training/loss"]), rows.losses, rtol=1e-6)
    np.testing.assert_allclose(numbers(curves["training/gradient_norm"]), rows.norms, rtol=1e-6)
    assert numbers(curves["training/loss_scale"]) == [2.0**15] * 10
    assert numbers(curves["training/skipped_steps"]) == [0] * 10
    assert numbers(curves["training/learning_rate"]) == pytest.approx([0.01] * 10)
    assert [at for at, _ in curves["evaluation/loss"]] == [5, 10]


def test_skipped_steps_are_counted(tmp_path: Path) -> None:
    data = examples()
    data["x"][17] = np.inf
    trained(tmp_path, data, epochs=1, shuffle=False)
    assert numbers(scalars(tmp_path)["training/skipped_steps"]) == [0, 0, 1, 1, 1]


def test_batches_that_wait_for_an_update_have_no_norm(tmp_path: Path) -> None:
    with amp.Trainer(step(accumulate=2), precision="float16", emulate=True) as trainer:
        trainer.train(examples(32), batch=8, callbacks=[TensorBoard(tmp_path)])
    assert [at for at, _ in scalars(tmp_path)["training/gradient_norm"]] == [2, 4]


def test_a_step_without_a_loss_scale_has_fewer_curves(tmp_path: Path) -> None:
    with amp.Trainer(amp.optimizers.Adam(0.01).minimize(loss())) as trainer:
        trainer.train(examples(), batch=8, callbacks=[TensorBoard(tmp_path)])
    assert set(scalars(tmp_path)) == {
        *("training/loss", "training/learning_rate", "training/gradient_norm"),
    }


def test_a_resumed_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c.safetensors"}
    trained(tmp_path / "run", epochs=1, **kept)
    trained(tmp_path / "run", epochs=2, resume=True, **kept)
    curves = scalars(tmp_path / "run")
    assert [at for at, _ in curves["training/loss"]] == list(range(1, 11))


class Fails(Callback):
    """Ends a run by an error."""

    def on_step(self, run: Run) -> None:
        if run.at.step == 3:
            raise ZeroDivisionError


def test_what_was_measured_before_an_error_is_written(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, callbacks=[Fails()])
    assert [at for at, _ in scalars(tmp_path)["training/loss"]] == [1, 2, 3]


def test_a_loss_that_is_not_finite_is_written_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = examples(16)
    data["x"][3] = np.nan
    trained(tmp_path, data, epochs=1, shuffle=False)
    assert math.isnan(numbers(scalars(tmp_path)["training/loss"])[0])
    assert not caplog.records


def test_a_folder_that_cannot_be_made_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="event file cannot be written"):
        trained(tmp_path / "file" / "run")


def test_a_missing_writer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(OptionError, match="pip install tensorboardX"):
        TensorBoard(tmp_path)
