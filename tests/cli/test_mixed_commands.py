"""`train-step --precision --loss-scale` and `train` on what it writes."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.graph.io.load import load
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.step.read_info import read_info


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    amp.save(amp.load(train_models.mlp((8, 16, 3))), "forward.onnx")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 8)).astype(np.float32)
    np.savez("data.npz", x=x, t=np.argmax(x[:, :3], axis=1))
    x[17, 3] = np.nan
    np.savez("nan.npz", x=x, t=np.zeros(40, np.int64))
    np.savez("all_nan.npz", x=x * np.float32(np.nan), t=np.zeros(40, np.int64))
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        output = capsys.readouterr()
        return int(ended.value.code or 0), output.out, output.err

    return command


def build(run: Any, *options: str) -> tuple[int, str, str]:
    return run("train-step", "forward.onnx", "-o", "step.onnx", "--loss", "loss", *options)


@pytest.mark.share(5)
@pytest.mark.parametrize(
    ("options", "precision", "scale"),
    [
        ([], "float32", None),
        (["--precision", "float16"], "float16", "DynamicLossScale"),
        (["--precision", "bfloat16"], "bfloat16", None),
        (["--precision", "bfloat16", "--loss-scale", "dynamic"], "bfloat16", "DynamicLossScale"),
        (["--precision", "float16", "--loss-scale", "128"], "float16", "FixedLossScale"),
        (["--precision", "float16", "--loss-scale", "none"], "float16", None),
        (["--loss-scale", "dynamic", "--conditional", "select"], "float32", "DynamicLossScale"),
    ],
)
def test_precision_and_loss_scale_are_options(
    run: Any, options: list[str], precision: str, scale: str | None
):
    status, out, err = build(run, *options)
    assert (status, err) == (0, "")
    info = read_info(load("step.onnx"))
    assert info.precision == precision
    assert (info.loss_scale or {}).get("class_name") == scale
    assert (f"{precision}: " in out) == (precision != "float32")
    assert ("casts" in out) == (precision != "float32")
    assert ("loss scale: " in out) == (scale is not None)
    kinds = {node.op_type for node in load("step.onnx").graph}
    assert ("If" in kinds) == (scale is not None and "select" not in options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "float8"], "unknown precision; found 'float8'"),
        (["--loss-scale", "lots"], "impossible loss scale; found 'lots'"),
        (["--loss-scale", "0.5"], "loss_scale_value must be at least 1"),
        (["--loss-scale", "dynamic", "--conditional", "x"], "make updates conditional; found 'x'"),
        (["--conditional", "x"], "make updates conditional; found 'x'"),
    ],
)
def test_wrong_options_are_errors_in_one_line(run: Any, options: list[str], message: str):
    status, out, err = build(run, *options)
    assert (status, out, err.count("\n")) == (1 if "0.5" in options else 2, "", 1)
    assert message in err


def test_emulated_training_shows_scale_and_skips(run: Any):
    build(run, "--precision", "float16")
    arguments = ["--epochs", "2", "--batch", "8", "--emulate"]
    status, out, err = run(
        "train", "step.onnx", "--data", "nan.npz", *arguments, "--metrics", "m.csv"
    )
    assert status == 0, err
    assert "2 epochs, 10 steps" in out
    assert "loss scale 8192, 2 steps skipped" in out
    rows = list(csv.DictReader(Path("m.csv").read_text().splitlines()))
    scales, skips = ([float(row[k]) for row in rows] for k in ("loss_scale", "skipped_steps"))
    assert (scales[0], skips[0], skips[-1]) == (32768, 0, 2)
    assert set(scales) == {32768, 16384, 8192}


@pytest.mark.filterwarnings("default::amp_rewrite.errors.AmpWarning")
def test_float16_on_a_cpu_is_a_warning_in_one_line(run: Any):
    build(run, "--precision", "float16")
    global_state.reset()
    status, _, err = run("train", "step.onnx", "--data", "data.npz")
    assert status == 0
    lines = [line for line in err.splitlines() if line.startswith("amp-rewrite: warning: ")]
    assert len(lines) == 1
    assert "float16 on a CPU is slower than float32" in lines[0]


def test_a_collapsed_scale_ends_training_with_one_line(run: Any):
    build(run, "--loss-scale", "dynamic", "--max-skips", "3")
    status, _, err = run(
        "train", "step.onnx", "--data", "all_nan.npz", "--batch", "2", "-o", "t.onnx"
    )
    lines = [line for line in err.splitlines() if line.startswith("amp-rewrite: ")]
    assert status == 1
    assert len(lines) == 1
    assert "loss scale: 3 steps in a row were skipped at the lowest loss scale, 1" in lines[0]
    assert not Path("t.onnx").exists()
