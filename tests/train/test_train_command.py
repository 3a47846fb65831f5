"""`amp-rewrite train`: a step file, data, checkpoints, metrics, evaluation, exit statuses."""

import numpy as np
import pytest
from handmade import batch, train_op
from typer import Typer
from typer.testing import CliRunner

from amp_rewrite.cli.train import train
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.load import load
from amp_rewrite.graph.save import save
from amp_rewrite.train import build_step
from amp_rewrite.train.checkpoint import read_checkpoint

APP = Typer()
APP.command()(train)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(build_step(train_op()), "step.onnx")
    np.savez("data.npz", **batch(0, 40))
    np.savez("held.npz", **batch(1, 20))
    return tmp_path


def command(*arguments):
    result = CliRunner().invoke(APP, ["step.onnx", "--data", "data.npz", *arguments])
    if isinstance(result.exception, AmpError):
        raise result.exception
    return result


def test_a_run_writes_the_model_the_checkpoint_and_the_metrics(folder):
    result = command(
        "--epochs", "3", "--batch", "8", "-o", "trained.onnx", "--checkpoint", "c.safetensors",
        "--metrics", "m.csv", "--eval", "held.npz",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "3 epochs, 15 steps, last loss" in result.stdout
    assert "held out: loss" in result.stdout
    assert len((folder / "m.csv").read_text().splitlines()) == 1 + 15 + 3
    weights = load("trained.onnx").graph.initializers
    tensors = read_checkpoint("c.safetensors").tensors
    np.testing.assert_array_equal(weights["w"].const_value.numpy(), tensors["w"])


def test_resuming_gives_the_same_weights_as_one_run(folder):
    command("--epochs", "4", "--batch", "8", "--checkpoint", "whole", "--quiet")
    command("--epochs", "2", "--batch", "8", "--checkpoint", "parts", "--quiet")
    result = command("--epochs", "4", "--batch", "8", "--checkpoint", "parts", "--resume")
    assert "4 epochs, 20 steps" in result.stdout
    whole, parts = read_checkpoint("whole").tensors, read_checkpoint("parts").tensors
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name])


def test_quiet_prints_nothing(folder):
    assert command("--quiet").output == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "nothing to resume from"),
        (["--resume", "--checkpoint", "missing"], "cannot be read"),
        (["--batch", "0"], "impossible batch; found 0"),
        (["--metrics", "m.txt"], "unknown format of metrics"),
        (["--checkpoint", "step.onnx"], "the output is the input"),
        (["--checkpoint", "c", "--metrics", "c"], "two outputs are one file"),
        (["--eval", "none.npz"], "the data cannot be read"),
        (["--learning-rate", "nan"], "learning rate must be finite"),
        (["--provider", "Nope"], "no such execution provider"),
    ],
)
def test_what_cannot_be_done_is_an_error_in_one_line(folder, arguments, message):
    with pytest.raises(AmpError, match=message) as caught:
        command(*arguments)
    assert "\n" not in str(caught.value)
