"""`amp-rewrite kernels`."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from amp_rewrite.cli import main

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,4] x, float[4,4] w) => (float[4,4] y) { h = MatMul(x, w) y = Relu(h) }"""


def left(*arguments: str | Path) -> object:
    """Return the exit status of the command line."""
    with pytest.raises(SystemExit) as leaving:
        main([str(argument) for argument in arguments])
    return leaving.value.code


def test_a_written_table_is_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    table, model = tmp_path / "kernels.json", tmp_path / "m.onnx"
    assert left("kernels", "cpu", "-o", table) == 0
    assert "operators of onnxruntime" in capsys.readouterr().out
    onnx.save(onnx.parser.parse_model(MODEL), model)
    # The CPU provider has no product in float16, and its table says so.
    assert left("convert", model, "-o", tmp_path / "out.onnx", "--target", table) == 0
    said = capsys.readouterr().out.replace("\n", "")
    assert "0 of 2 float32 nodes" in said


@pytest.mark.parametrize(
    ("provider", "output", "expected"),
    [
        ("cpu", "table.txt", "this is not a name for a kernel table"),
        ("cpu", "a,b.json", "a path without commas"),
        ("NoSuchProvider", "table.json", "no kernels of this execution provider"),
    ],
)
def test_what_cannot_be_a_table_is_one_line(
    provider: str, output: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    assert left("kernels", provider, "-o", tmp_path / output) == (
        1 if "no kernels" in expected else 2
    )
    said = capsys.readouterr()
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
