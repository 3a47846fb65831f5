"""`amp-rewrite train` on data as newcomers have them: CSV, standard input."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.cli import main

TABLE = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N,4] x) => (float[N,3] logits) <float[4,3] w = {1,0,0,0,1,0,0,0,1,0,0,0}> {
  logits = MatMul(x, w) }"""
ROWS = 30


def step(folder: Path) -> None:
    """Write a step that learns one of three classes, labels `label`."""
    model = amp.load(onnx.parser.parse_model(TABLE))
    loss = amp.losses.softmax_cross_entropy(model, "logits", "label")
    operation = amp.optimizers.Adam(0.05).minimize(loss)
    amp.save(amp.build_step(operation), folder / "step.onnx")


def numbers() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = np.arange(ROWS) % 3
    return rng.random((ROWS, 4)).round(3) + 2.0 * np.eye(4)[labels], labels


def table() -> str:
    rows = (",".join(map(str, [*x, t])) for x, t in zip(*numbers(), strict=True))
    return "x0,x1,x2,x3,label\n" + "\n".join(rows) + "\n"


def train(data: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    given = ["train", "step.onnx", "--data", data, "--epochs", "9", "--batch", "8"]
    with pytest.raises(SystemExit) as left:
        main([*given, "--eval", data, "-o", "trained.onnx", "--threads", "1"])
    captured = capsys.readouterr()
    assert left.value.code == 0, captured.err
    assert "accuracy 100.00%" in captured.out
    found = amp.load(folder / "trained.onnx").graph.initializers["w"].const_value
    assert found is not None
    return found.numpy()


def test_a_table_trains_as_the_same_arrays_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    step(tmp_path)
    x, labels = numbers()
    np.savez("data.npz", x=x, label=labels)  # float64, as numpy makes it
    Path("data.csv").write_text(table(), "utf-8")
    from_arrays = train("data.npz", tmp_path, capsys)
    np.testing.assert_array_equal(train("data.csv", tmp_path, capsys), from_arrays)


def piped(folder: Path, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-P", "-m", "amp_rewrite", *arguments]
    return subprocess.run(command, input=content, capture_output=True, cwd=folder, check=False)


def test_data_come_from_standard_input_in_the_form_that_they_have(tmp_path: Path) -> None:
    step(tmp_path)
    x, labels = numbers()
    stream = io.BytesIO()
    np.savez(stream, x=x, label=labels)
    trained: list[bytes] = []
    for content in (stream.getvalue(), table().encode()):
        options = ("--epochs", "1", "--batch", "8", "--threads", "1", "--quiet")
        done = piped(tmp_path, content, "train", "step.onnx", "--data", "-", "-o", "-", *options)
        assert done.returncode == 0, done.stderr
        trained.append(done.stdout)
    assert trained[0] == trained[1]
    onnx.checker.check_model(onnx.load_from_string(trained[0]))


@pytest.mark.slow
def test_a_batch_comes_from_standard_input(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TABLE), tmp_path / "m.onnx")
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((2, 4), np.float32))
    command = ("verify", "m.onnx", "m.onnx", "--data", "-")
    done = piped(tmp_path, stream.getvalue(), *command)
    assert done.returncode == 0, done.stderr
    twice = piped(tmp_path, b"", "train", "step.onnx", "--data", "-", "--eval", "-")
    assert (twice.returncode, twice.stdout) == (2, b"")
    assert b"two arguments read standard input" in twice.stderr
