"""`amp-rewrite train`: a step file, data, checkpoints, metrics, evaluation, exit statuses."""

import csv
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from handmade import CLASSIFIER, FORWARD, batch, model_of, train_op

import amp_rewrite as amp
from amp_rewrite.cli.command_table import command as command_called
from amp_rewrite.cli.main import main
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.session.checkpoint import read_checkpoint
from amp_rewrite.training.step.build_step import build_step

APP = command_called("train")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(build_step(train_op()), "step.onnx")
    np.savez("data.npz", **batch(0, 40))
    np.savez("held.npz", **batch(1, 20))
    return tmp_path


def command(*arguments, step="step.onnx"):
    result = CliRunner().invoke(APP, [step, "--data", "data.npz", *arguments])
    if isinstance(result.exception, AmpError):
        raise result.exception
    return result


def rows_of(path):
    return list(csv.DictReader(path.read_text().splitlines()))


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


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "step.onnx/trained.onnx"], "the folder cannot be written"),
        (["--checkpoint", "held.npz/c"], "the folder cannot be written"),
        (["--eval", "one.npz"], "one.npz: the input 't' is not fed"),
        (["--data", "one.npz"], "the input 't' is not fed"),
        (["--data", "more.npz"], "the step has no input 'z'"),
        (["--checkpoint-every", "5"], "--checkpoint-every has no effect without --checkpoint"),
        (["--resume"], "--resume has no effect without --checkpoint"),
        (["--batch", "0"], "impossible batch; found 0"),
        (["--metrics", "m.txt"], "unknown format of metrics"),
        (["--output", "step.onnx"], "the output is the input"),
        (["--checkpoint", "c", "--metrics", "c"], "two outputs are one file"),
        (["--eval", "none.npz"], "no such data"),
        (["--learning-rate", "nan"], "impossible learning_rate"),
        (["--provider", "Nope"], "no such execution provider"),
    ],
)
def test_what_cannot_be_done_is_an_error_in_one_line(folder, arguments, message):
    np.savez("one.npz", x=batch(0, 8)["x"])
    np.savez("more.npz", z=np.zeros(8, np.float32), **batch(0, 8))
    before = sorted(folder.iterdir())
    with pytest.raises(AmpError, match=message) as caught:
        command(*arguments)
    assert "\n" not in str(caught.value)
    assert sorted(folder.iterdir()) == before


def test_accuracy_is_evaluated_where_the_loss_compares_classes(folder):
    model = onnx.parser.parse_model(CLASSIFIER)
    step = build_step(
        amp.optimizers.Momentum(0.5).minimize(
            amp.losses.softmax_cross_entropy(amp.load(model), "logits", "t")
        ),
        targets={"logits": "logits", "labels": "t"},
    )
    save(step, "classes.onnx")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    np.savez("classes.npz", x=x, t=x[:, :3].argmax(1))
    result = command("--data", "classes.npz", "--eval", "classes.npz", "--epochs", "20",
                     "--metrics", "m.csv", step="classes.onnx")  # fmt: skip
    assert "accuracy 9" in result.stdout or "accuracy 100" in result.stdout
    last = rows_of(folder / "m.csv")[-1]
    assert float(last["eval_accuracy"]) >= 0.9


def fixed_batch():
    """Return a step whose batch has 8 examples."""
    model = model_of(FORWARD.replace("[N, 4] x", "[8, 4] x").replace("[N, 2] t", "[8, 2] t"))
    return build_step(amp.optimizers.GradientDescent().minimize(amp.value(model, "loss")))


def test_examples_that_do_not_fill_a_batch_of_fixed_size_are_left_out(folder):
    save(fixed_batch(), "fixed.onnx")
    result = command("--batch", "8", "--eval", "held.npz", "--epochs", "2", step="fixed.onnx")
    assert "2 epochs, 10 steps" in result.stdout  # of 20 held-out examples, 16 are evaluated
    np.savez("few.npz", **batch(0, 7))
    for option in ("--data", "--eval"):
        with pytest.raises(AmpError, match=r"few\.npz: too few examples for a batch; found 7"):
            command("--batch", "8", option, "few.npz", step="fixed.onnx")
    with pytest.raises(AmpError, match=r"expected float32 \[8, 4\]; feed batches of 8 \(--batch"):
        command("--batch", "16", step="fixed.onnx")


def test_an_interruption_leaves_whole_files_and_can_be_resumed(folder, monkeypatch, capsys):
    arguments = ["--batch", "8", "--epochs", "4", "--checkpoint", "c", "-o", "trained.onnx",
                 "--metrics", "m.csv", "--quiet"]  # fmt: skip
    command(*arguments)
    whole = read_checkpoint("c").tensors
    for name in ("c", "trained.onnx", "m.csv"):
        (folder / name).unlink()
    run, calls = amp.TrainingSession.run, []

    def interrupted(self, *given, **options):
        calls.append(1)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return run(self, *given, **options)

    monkeypatch.setattr(amp.TrainingSession, "run", interrupted)
    with pytest.raises(SystemExit) as exit_:
        main(["train", "step.onnx", "--data", "data.npz", *arguments])
    monkeypatch.setattr(amp.TrainingSession, "run", run)
    assert exit_.value.code == 130
    assert "interrupted" in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir() if p.suffix != ".npz") == [
        "c", "m.csv", "step.onnx"
    ]  # fmt: skip
    assert read_checkpoint("c").progress["step"] == 10
    command(*arguments, "--resume")
    parts = read_checkpoint("c").tensors
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name])
    rows = rows_of(folder / "m.csv")
    assert [int(row["step"]) for row in rows] == list(range(1, 21))


@pytest.fixture
def classes(folder):
    """A classifier of 3 classes and its data."""
    model = amp.load(onnx.parser.parse_model(CLASSIFIER))
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    save(build_step(amp.optimizers.Momentum(0.5).minimize(loss)), "step.onnx")
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(20, 4)).astype(np.float32), "t": np.arange(20) % 3}


@pytest.mark.parametrize("label", [-1, 3])
@pytest.mark.parametrize("file", ["--data", "--eval"])
def test_labels_that_do_not_exist_are_found_by_name_before_training(classes, folder, label, file):
    np.savez("data.npz", **classes)
    np.savez("wrong.npz", x=classes["x"], t=np.where(np.arange(20) == 13, label, classes["t"]))
    text = rf"wrong.npz .*'t' holds a class that does not exist; found {label} at \[13\]; 1 of 20"
    with pytest.raises(AmpError, match=text) as caught:
        command(file, "wrong.npz", "--checkpoint", "c.safetensors", "--metrics", "m.csv")
    assert "\n" not in str(caught.value)
    assert not {"c.safetensors", "m.csv"} & {path.name for path in folder.iterdir()}


def test_numbers_that_are_not_finite_end_training_or_are_skipped(classes):
    classes["x"][7, 2] = np.inf
    np.savez("data.npz", **classes)
    with pytest.raises(AmpError, match="the batch holds numbers that are not; found x: 1 not"):
        command()
    scaled = amp.LossScaleOptimizer(amp.optimizers.Momentum(0.5), amp.DynamicLossScale(8.0))
    model = amp.load(onnx.parser.parse_model(CLASSIFIER))
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    save(build_step(scaled.minimize(loss)), "scaled.onnx")
    result = command("--epochs", "2", "--batch", "5", step="scaled.onnx")
    assert "2 steps skipped" in result.stdout


def test_rows_have_what_was_measured(folder):
    loss = amp.value(model_of(CLASSIFIER), "loss")
    save(build_step(amp.optimizers.Adam(0.01).minimize(loss)), "classes.onnx")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez("data.npz", x=x, t=x[:, :3].argmax(-1))
    result = command(
        "--epochs", "3", "--batch", "8", "--eval", "data.npz", "--metrics", "m.csv",
        step="classes.onnx",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    evaluated = [row for row in rows_of(folder / "m.csv") if row["eval_loss"]]
    assert [row["step"] for row in evaluated] == ["5", "10", "15"]


def test_ctrl_c_saves_and_ends_with_130(folder):
    """A process is interrupted in the middle of an epoch, and goes on to the same end."""
    words = ["train", "step.onnx", "--data", "data.npz", "--batch", "1", "--learning-rate", "1e-6"]
    process = [sys.executable, "-m", "amp_rewrite", *words, "--checkpoint", "c.safetensors"]
    running = subprocess.Popen(
        [*process, "--metrics", "m.csv", "--epochs", "100000"], stderr=subprocess.PIPE, text=True
    )
    log = folder / "m.csv"
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) > 60)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "c.safetensors has the state; go on with --resume" in " ".join(said.split())
    epochs = str(read_checkpoint("c.safetensors").progress["epoch"] + 2)
    subprocess.run([*process, "--resume", "--epochs", epochs], check=True)
    resumed = read_checkpoint("c.safetensors").tensors
    subprocess.run([*process, "--epochs", epochs], check=True)
    for name, array in read_checkpoint("c.safetensors").tensors.items():
        np.testing.assert_array_equal(resumed[name], array)


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


@pytest.mark.usefixtures("folder")
def test_resuming_without_a_checkpoint_begins_afresh_and_says_so():
    arguments = ("--epochs", "2", "--batch", "8", "--checkpoint", "c")
    fresh = command(*arguments, "--resume")
    assert fresh.exit_code == 0
    assert "c does not exist yet: training starts from the beginning" in fresh.stderr
    before = read_checkpoint("c").tensors
    command(*arguments[:-1], "d")
    for name, array in read_checkpoint("d").tensors.items():
        np.testing.assert_array_equal(before[name], array)
    assert "afresh" not in command(*arguments, "--resume").stderr


@pytest.mark.usefixtures("folder")
def test_there_is_a_line_per_epoch_without_a_terminal():
    arguments = ("--epochs", "2", "--batch", "8", "--eval", "held.npz")
    said = command(*arguments).stderr.splitlines()
    assert [line.partition(", loss ")[0] for line in said] == [
        "epoch 1/2, step 5",
        "epoch 2/2, step 10",
    ]
    assert all("; held out loss " in line for line in said)
    assert command(*arguments, "--quiet").stderr == ""
