"""`amp-rewrite run`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from amp_rewrite.cli import main
from amp_rewrite.targets import CPU


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write a model with a bfloat16 and a sequence output, and its input."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[2] x) => (float[2] y, bfloat16[2] low, seq(float[1]) parts)"
        "{ y = Add(x, x) low = Cast<to: int = 16>(x) parts = SplitToSequence(x) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.array([1, 2], np.float32))
    return tmp_path


def run(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main(["run", *map(str, arguments)])
    return int(left.value.code or 0)


def test_outputs_and_a_report_are_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (files / "m.onnx", "--data", files / "in.npz", "--provider", "cpu", "--repeat", 2)
    assert run(*given, "-o", files / "out.npz", "--report", files / "r.json") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{CPU}: first run ")
    assert "1 Add" in said[1]
    outputs = dict(np.load(files / "out.npz"))
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "y": [2, 4],
        "low": [1, 2],
        "parts.0": [1],
        "parts.1": [2],
    }
    assert len(json.loads((files / "r.json").read_text("utf-8"))["seconds"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--provider", "tpu"), "no such execution provider; found 'tpu'"),
        (("-o", "in.npz"), "the output is a file of the data"),
        (("-o", "o.npz", "--report", "o.npz"), "two outputs are one file"),
        (("-o", "m.onnx"), "outputs are written as .npz"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: tuple[str, ...],
    said: str,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    assert run("m.onnx", "--data", "in.npz", "--repeat", "0", *arguments) == (
        1 if "the output is" in said else 2
    )
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not Path("o.npz").exists()
