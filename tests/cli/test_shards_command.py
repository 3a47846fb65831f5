"""amp-rewrite train --shards mpi, and train-step --cross-shard."""

import csv
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import shard_models as models
from click.testing import CliRunner
from digits_file import all_digits
from launch import launcher

from amp_rewrite.cli.main import app, main
from amp_rewrite.training.session.checkpoint import read_checkpoint

MAIN = ["-c", "from amp_rewrite.cli import main; main()"]


def command(*words):
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output or done.exception
    return done.output


def sharded(*words):
    start = launcher(2)
    return subprocess.run(
        [*start, *MAIN, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a step for shards, one without, and data of 5 batches."""
    path = tmp_path_factory.mktemp("command")
    onnx.save(models.plain_cnn(), path / "net.onnx")
    data: dict[str, Any] = dict(all_digits().arrays)
    np.savez(path / "data.npz", **{name: a[:320] for name, a in data.items()})
    np.savez(path / "held.npz", **{name: a[320:400] for name, a in data.items()})
    words = ("train-step", path / "net.onnx", "--loss", "loss", "--learning-rate", 0.001)
    command(*words, "-o", path / "plain.onnx", "--quiet")
    command(*words, "-o", path / "step.onnx", "--cross-shard", "mean", "--quiet")
    return path


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_shards_train_as_one_process_does_and_the_first_writes(folder, tmp_path):
    options = ("--data", folder / "data.npz", "--batch", 64, "--eval", folder / "held.npz")
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    command("train", folder / "plain.onnx", *options, "--epochs", 2, "--metrics", one)
    checkpoint, trained = tmp_path / "c.safetensors", tmp_path / "trained.onnx"
    files = ("--metrics", two, "--checkpoint", checkpoint, "-o", trained)
    done = sharded(
        "train", folder / "step.onnx", *options, "--epochs", 2, *files, "--shards", "mpi"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 epochs, 10 steps") == 1
    onnx.checker.check_model(trained, full_check=True)
    expected, found = rows(one), rows(two)
    assert len(found) == len(expected) == 12
    for row, other in zip(found, expected, strict=True):
        for name in ("loss", "eval_loss", "eval_accuracy"):
            assert bool(row[name]) == bool(other[name])
            if row[name]:
                assert float(row[name]) == pytest.approx(float(other[name]), rel=1e-5)
    # The checkpoint is one of a single process too.
    again = ("--epochs", 3, "--resume", "--checkpoint", checkpoint)
    output = command("train", folder / "plain.onnx", *options, *again)
    assert "3 epochs, 15 steps" in output


OF_RANK = """
import sys
from mpi4py import MPI
from amp_rewrite.cli import main
main([word.replace("RANK", str(MPI.COMM_WORLD.rank)) for word in sys.argv[1:]])
"""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--data", "{0}/RANK.npz"),
            "the shards differ in the training data; found t int64 [300]",
        ),
        (
            ("--data", "{0}/data.npz", "--eval", "{0}/RANK.npz"),
            "the shards differ in the held-out data; found t int64 [300]",
        ),
        (
            ("--data", "{0}/data.npz", "--seed", "RANK"),
            "shard 1: the shards differ in the order of steps; found epochs 1, batch 32, seed 1, "
            "shuffle True; expected epochs 1, batch 32, seed 0,",
        ),
    ],
)
def test_shards_with_other_data_or_another_order_are_found_at_start(folder, words, text):
    data: dict[str, Any] = dict(all_digits().arrays)
    for rank, size in enumerate((320, 300)):
        np.savez(folder / f"{rank}.npz", **{name: a[:size] for name, a in data.items()})
    done = subprocess.run(
        [*launcher(2), "-c", OF_RANK, "train", str(folder / "step.onnx"), "--shards", "mpi"]
        + [word.format(folder) for word in words],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 1
    assert text.format() in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("plain.onnx", "--batch", 64), "the step sums nothing over shards"),
        (("step.onnx", "--batch", 63), "found 63 examples; expected a multiple of 2"),
    ],
)
def test_what_cannot_be_shared_out_is_an_error(folder, words, text):
    step, *others = words
    data = ("--data", folder / "data.npz")
    done = sharded("train", folder / step, *data, *others, "--shards", "mpi")
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("train", "step.onnx", "--data", "data.npz", "--shards", "nccl"),
            "unknown engine of shards; found 'nccl'; expected 'mpi'",
        ),
        (
            ("train-step", "net.onnx", "-o", "x.onnx", "--loss", "loss", "--cross-shard", "max"),
            "Unsupported reduction; found 'max'",
        ),
    ],
)
def test_impossible_options_are_errors_in_one_line(folder, words, text, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        main([*words])
    assert end.value.code == (2 if "nccl" in words else 1)
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1


INTERRUPTED_AT = """
import os, signal, sys
from mpi4py import MPI
from amp_rewrite.cli import main
from amp_rewrite.training.session.training_session import TrainingSession
run, steps = TrainingSession.run, []
def interrupted(self, *given, **options):
    steps.append(1)
    if MPI.COMM_WORLD.rank == 1 and len(steps) == 7:
        os.kill(os.getpid(), signal.SIGINT)
    return run(self, *given, **options)
TrainingSession.run = interrupted
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_ctrl_c_on_one_shard_saves_and_ends_all(folder, tmp_path):
    """Two batches make an update and an epoch has five, so that the last one is of one batch."""
    words = ("train-step", folder / "net.onnx", "--loss", "loss", "--accumulate", 2)
    step, path = tmp_path / "step.onnx", tmp_path / "c.safetensors"
    command(*words, "-o", step, "--cross-shard", "mean", "--quiet")
    options = ("--data", folder / "data.npz", "--batch", 64, "--checkpoint", path)
    wanted = ("train", step, *options, "--epochs", 1000, "--shards", "mpi")
    done = subprocess.run(
        [*launcher(2), "-c", INTERRUPTED_AT, *map(str, wanted)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert " ".join(done.stderr.split()).count("training ended after step 7, in epoch 2") == 1
    assert read_checkpoint(path).progress["step"] == 7
    assert read_checkpoint(path).tensors["global_step"] == 4


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_trains_on_shards(tmp_path, folder):
    command_line = [*launcher(2), str(ROOT / "examples" / "train_shards.py")]
    words = [str(folder / "net.onnx"), str(folder / "data.npz")]
    done = subprocess.run(
        [*command_line, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 5
    assert (tmp_path / "digits.safetensors").exists()


def test_the_documentation_shows_the_example_as_it_is():
    code = (ROOT / "examples" / "train_shards.py").read_text().split('"""\n\n', 1)[1]
    assert f"```python\n{code}```\n" in (ROOT / "docs" / "shards.md").read_text()
