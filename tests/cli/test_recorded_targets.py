"""A file says what it was made for: commands take that where nobody names a target, and say so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.cli import main

SAID = "target webgpu: the model says that it was made for it (or name --target)"
TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
    [dot] h = MatMul(x, w) [act] y = Relu(h) }"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    amp.rewrite(tmp_path / "m.onnx", target="webgpu").save(tmp_path / "low.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    return tmp_path


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


COMMANDS = [
    ("check", "low.onnx"),
    ("repair", "low.onnx", "-o", "again.onnx"),
    ("explain", "low.onnx", "dot"),
    ("convert", "low.onnx", "-o", "again.onnx"),
    ("localise", "m.onnx", "low.onnx", "--data", "x.npz"),
    ("tune", "low.onnx", "--data", "x.npz", "-o", "list.yaml"),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_recorded_target_is_taken_and_named_unless_one_is_given(
    files: Path,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(files)
    assert run(*command) == 0
    assert SAID in capsys.readouterr().out
    assert run(*command, "--target", "cuda") == 0
    assert "made for it" not in capsys.readouterr().out


def test_localise_emulates_the_target_of_the_rewritten_model(files: Path) -> None:
    report = files / "report.json"
    run(
        "localise",
        files / "m.onnx",
        files / "low.onnx",
        "--data",
        files / "x.npz",
        "--report",
        report,
    )
    assert json.loads(report.read_text())["target"] == "webgpu"


def test_a_rewrite_takes_the_target_of_its_model_where_it_computes_in_the_precision(
    files: Path,
) -> None:
    low = files / "low.onnx"
    assert amp.rewrite(low).options.target == "webgpu"
    assert amp.rewrite(low, target="cpu").options.target == "cpu"
    assert amp.rewrite(low, precision="bfloat16").options.chosen_target == "cuda"
    assert amp.check(low).target == "webgpu"
    assert amp.check(low, target="cuda").target == "cuda"
    assert amp.convert(low, {"x": np.ones((2, 4), np.float32)}).result.options.target == "webgpu"
