"""`amp-rewrite train`: a step file, data, checkpoints, metrics, evaluation, exit statuses."""

import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from event_files import scalars
from handmade import CLASSIFIER, FORWARD, batch, model_of, train_op
from typer import Typer
from typer.testing import CliRunner

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.cli.train import train
from amp_rewrite.cli.train_step import train_step
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.session.checkpoint import read_checkpoint
from amp_rewrite.training.step.build_step import build_step

APP = Typer()
APP.command()(train)


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


def test_quiet_prints_nothing(folder):
    assert command("--quiet").output == ""


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "no/trained.onnx"], "the folder of the output does not exist"),
        (["--checkpoint", "no/c"], "the folder of the output does not exist"),
        (["--eval", "one.npz"], "one.npz: the input 't' is not fed"),
        (["--data", "one.npz"], "the input 't' is not fed"),
        (["--data", "more.npz"], "the step has no input 'z'"),
        (["--resume"], "nothing to resume from"),
        (["--batch", "0"], "impossible batch; found 0"),
        (["--metrics", "m.txt"], "unknown format of metrics"),
        (["--output", "step.onnx"], "the output is the input"),
        (["--checkpoint", "c", "--metrics", "c"], "two outputs are one file"),
        (["--eval", "none.npz"], "the data cannot be read"),
        (["--learning-rate", "nan"], "learning rate must be finite"),
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


def test_the_metrics_of_an_earlier_run_outlive_one_that_fails(folder):
    command("--metrics", "m.jsonl", "--eval", "held.npz")
    before = (folder / "m.jsonl").read_text()
    rows = [json.loads(line) for line in before.splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 2]
    assert "eval_loss" in rows[-1]
    np.savez("one.npz", x=batch(0, 8)["x"])
    with pytest.raises(AmpError, match="not fed"):
        command("--metrics", "m.jsonl", "--eval", "one.npz")
    assert (folder / "m.jsonl").read_text() == before
    command("--metrics", "m.jsonl", "--batch", "40")
    assert len((folder / "m.jsonl").read_text().splitlines()) == 1


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
    with pytest.raises(AmpError, match=r"found \[16, 4\]; expected float32 \[8, 4\]"):
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


@pytest.mark.parametrize("arguments", [["--threads", "-1"], ["--epochs", "few"]])
def test_wrong_usage_has_its_own_status(folder, arguments):
    assert command(*arguments).exit_code == 2


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


def test_numbers_that_are_not_finite_are_refused_or_allowed(classes):
    classes["x"][7, 2] = np.inf
    np.savez("data.npz", **classes)
    text = r"data.npz: the feed 'x' holds a number that is not finite; found inf at \[7, 2\]"
    with pytest.raises(AmpError, match=text):
        command("--non-finite", "refuse")
    with pytest.raises(AmpError, match="unknown treatment of numbers that are not finite"):
        command("--non-finite", "drop")
    with pytest.raises(AmpError, match="the batch holds numbers that are not; found x: 1 not"):
        command()
    scaled = amp.LossScaleOptimizer(amp.optimizers.Momentum(0.5), amp.DynamicLossScale(8.0))
    model = amp.load(onnx.parser.parse_model(CLASSIFIER))
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    save(build_step(scaled.minimize(loss)), "scaled.onnx")
    result = command("--epochs", "2", "--batch", "5", step="scaled.onnx")
    assert "2 steps skipped" in result.stdout
    classes["x"][:, 1] = np.nan
    np.savez("data.npz", **classes)
    with pytest.raises(AmpError, match=r"every step .* was skipped: .*; found x: \d+ not finite"):
        command("--epochs", "2", "--batch", "5", step="scaled.onnx")


@pytest.mark.parametrize("kind", [np.bool_, np.complex64])
def test_data_of_a_type_that_loses_more_than_digits_are_refused(classes, kind):
    np.savez("data.npz", x=classes["x"].astype(kind), t=classes["t"])
    name = np.dtype(kind).name
    with pytest.raises(AmpError, match=rf"'x' has the wrong element type; found {name}"):
        command()


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int64])
def test_numbers_of_another_type_are_cast(classes, kind):
    np.savez("data.npz", x=classes["x"].astype(kind), t=classes["t"])
    assert command().exit_code == 0


def test_metrics_the_best_checkpoint_and_event_files(folder):
    loss = amp.value(model_of(CLASSIFIER), "loss")
    save(build_step(amp.optimizers.Adam(0.01).minimize(loss)), "classes.onnx")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez("data.npz", x=x, t=x[:, :3].argmax(-1))
    result = command(
        "--epochs", "3", "--batch", "8", "--eval", "data.npz", "--metric", "top-2:logits:t",
        "--metric", "perplexity", "--metrics", "m.csv", "--best", "best.safetensors",
        "--tensorboard", "events", step="classes.onnx",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "top 2 accuracy" in result.stdout
    evaluated = [row for row in rows_of(folder / "m.csv") if row["eval_loss"]]
    assert [float(row["eval_perplexity"]) for row in evaluated] == pytest.approx(
        [np.exp(float(row["eval_loss"])) for row in evaluated], rel=1e-4
    )
    assert read_checkpoint("best.safetensors").progress["step"] in (5, 10, 15)
    curves = scalars(folder / "events")
    assert set(curves) == {
        *("training/loss", "training/learning_rate", "training/examples_per_second"),
        *("evaluation/loss", "evaluation/top_2_accuracy", "evaluation/perplexity"),
    }
    assert [step for step, _ in curves["training/loss"]] == list(range(1, 16))
    for (_, found), row in zip(curves["evaluation/loss"], evaluated, strict=True):
        assert found == pytest.approx(float(row["eval_loss"]), rel=1e-6)


def test_patience_ends_training_and_says_why(folder):
    words = ("--epochs", "50", "--eval", "held.npz", "--patience", "1", "--learning-rate", "9")
    result = command(*words)
    assert result.exit_code == 0, result.output
    assert "stopped: eval_loss was not better than" in " ".join(result.stdout.split())


def test_a_folder_and_a_parquet_file_train_as_the_archive_does(folder):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    data = dict(np.load("data.npz"))
    (folder / "arrays").mkdir()
    columns = {}
    for name, array in data.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
        columns[name] = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
    parquet.write_table(pa.table(columns), "data.parquet")
    found = []
    for source in ("data.npz", "arrays", "data.parquet"):
        arguments = ["step.onnx", "--data", source, "--no-shuffle", "--batch", "8"]
        result = CliRunner().invoke(APP, [*arguments, "--checkpoint", "c.safetensors"])
        assert result.exit_code == 0, result.output
        found.append(read_checkpoint("c.safetensors").tensors)
    for tensors in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(tensors[name], array)


def test_best_without_held_out_data_is_an_error(folder):
    with pytest.raises(AmpError, match="--best does nothing without --eval; add --eval"):
        command("--best", "b.safetensors")


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


def test_two_outputs_that_are_one_file_are_an_error_before_training(folder):
    with pytest.raises(AmpError, match="two outputs are one file"):
        command("--metrics", "run.csv", "-o", "run.csv")
    assert not (folder / "run.csv").exists()


METHODS = ("plain", "averaged")


def averaged_step(average="ema:0.5"):
    """Write a step that keeps averages, by the command."""
    save(model_of(FORWARD), "forward.onnx")
    made = Typer()
    made.command()(train_step)
    result = CliRunner().invoke(
        made, ["forward.onnx", "-o", "keeps.onnx", "--loss", "loss", "--average", average]
    )
    assert result.exit_code == 0, result.output


def test_averages_are_evaluated_and_written(folder):
    averaged_step()
    for name, options in (("plain", ()), ("averaged", ("--averaged",))):
        command(
            *("--checkpoint", f"{name}.safetensors", "-o", f"{name}.onnx", "--eval", "held.npz"),
            *("--metrics", f"{name}.csv", *options),
            step="keeps.onnx",
        )
    tensors = read_checkpoint("averaged.safetensors").tensors
    weights = {n: load(f"{n}.onnx").graph.initializers["w"].const_value for n in METHODS}
    (average,) = (v for k, v in tensors.items() if k.startswith("w/") and "verage" in k)
    np.testing.assert_array_equal(weights["averaged"].numpy(), average)
    np.testing.assert_array_equal(weights["plain"].numpy(), tensors["w"])
    plain, averaged = (rows_of(folder / f"{n}.csv")[-1]["eval_loss"] for n in METHODS)
    assert plain != averaged


def test_adapters_are_merged(folder):
    save(model_of(FORWARD), "forward.onnx")
    app = Typer()
    app.command()(train_step)
    made = CliRunner().invoke(
        app, ["forward.onnx", "-o", "lora.onnx", "--loss", "loss", "--lora", "w"]
    )
    assert made.exit_code == 0, made.output
    result = command("-o", "merged.onnx", step="lora.onnx")
    assert result.exit_code == 0, result.output
    before, after = (amp.load(name).graph.initializers for name in ("forward.onnx", "merged.onnx"))
    changed = [
        name
        for name in ("w", "b")
        if (before[name].const_value.numpy() != after[name].const_value.numpy()).any()
    ]
    assert changed == ["w"]


def test_averages_that_no_step_keeps_are_refused(folder):
    with pytest.raises(AmpError, match="keeps no averages"):
        command("--averaged", "--eval", "held.npz")


def test_a_checkpoint_of_another_step_is_begun_with(folder):
    command("--epochs", "1", "--checkpoint", "c.safetensors", "--quiet")
    averaged_step()
    with pytest.raises(AmpError, match=r"c\.safetensors"):
        command("--restore", "c.safetensors", step="keeps.onnx")
    result = command("--restore", "c.safetensors", "--no-strict", step="keeps.onnx")
    assert result.exit_code == 0, result.output
    assert "tensors taken" in result.output
    assert "left: w/Momentum" in result.output


def test_a_checkpoint_that_fits_is_begun_with_from_the_first_epoch(folder):
    command("--epochs", "2", "--checkpoint", "c.safetensors", "--quiet")
    result = command("--restore", "c.safetensors", "--epochs", "1", "--checkpoint", "d.safetensors")
    assert "1 epochs, 2 steps" in result.stdout
    steps = [read_checkpoint(f"{name}.safetensors").tensors["global_step"] for name in "cd"]
    assert steps == [4, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--no-strict",), "--no-strict does nothing without --restore"),
        (("--restore", "c", "--resume", "--checkpoint", "d"), "leave one of them out"),
        (("--eval", "held.npz", "--patience", "1", "--mode", "best"), "unknown mode"),
        (("--target", "abacus"), "abacus"),
    ],
)
def test_options_that_exclude_each_other_or_are_unknown(folder, options, message):
    with pytest.raises(AmpError, match=message):
        command(*options)


def test_the_model_of_the_best_evaluation_is_written(folder):
    """The rate is far too high: the first evaluation is the best one."""
    options = ("--eval", "held.npz", "--best", "best.safetensors", "--learning-rate", "30")
    result = command(*options, "--epochs", "3", "-o", "best.onnx", "--restore-best")
    step = read_checkpoint("best.safetensors").progress["step"]
    assert f"restored: step {step}, held out loss" in result.stdout
    weights = {v.name: v.const_value.numpy() for v in load("best.onnx").graph.initializers.values()}
    best = read_checkpoint("best.safetensors").tensors
    assert step == 2
    for name in ("w", "b"):
        np.testing.assert_array_equal(weights[name], best[name])


def test_what_is_better_by_too_little_ends_training(folder):
    result = command(
        *("--eval", "held.npz", "--patience", "1", "--min-delta", "1e9", "--epochs", "9"),
        *("--mode", "min"),
    )
    assert "stopped: eval_loss was not better than" in result.stdout
    assert "2 epochs" in result.stdout


def test_a_learning_rate_is_searched_and_nothing_trained(folder):
    with pytest.raises(AmpError, match="writes nothing; found --output, --tensorboard; omit them"):
        command("--find-learning-rate", "-o", "trained.onnx", "--tensorboard", "events")
    result = command("--find-learning-rate")
    assert "suggested learning rate" in result.stdout


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
