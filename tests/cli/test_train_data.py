"""`amp-rewrite train` on data as newcomers have them: CSV, standard input."""

from __future__ import annotations

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
