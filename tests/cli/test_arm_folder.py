"""--arm64-folder of the commands that run models; this Python stands in for the emulated Arm."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from amp_rewrite.cli.main import main
from amp_rewrite.runtimes.ort.arm64 import arm_session, machine

PLAIN = """<ir_version: 9, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {%s}> { h = MatMul(x, w) y = Relu(h) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, a batch, and an `arm` whose program is this Python."""
    onnx.save(onnx.parser.parse_model(PLAIN % ",".join("1" * 16)), tmp_path / "m.onnx")
    low = PLAIN.replace("float[", "float16[") % ",".join(["15360"] * 16)  # the bits of 1
    onnx.save(onnx.parser.parse_model(low), tmp_path / "low.onnx")
    np.savez(tmp_path / "x.npz", x=np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    program = tmp_path / "arm" / "run"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.delenv(machine.FOLDER, raising=False)
    for module in (machine, arm_session):
        monkeypatch.setattr(module, "is_arm", lambda: False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], folder: Path, words: str) -> tuple[int, str, str]:
    """Run a command; files stand in the folder, and x.npz is its data."""
    given = [str(folder / word) if "." in word or word == "arm" else word for word in words.split()]
    with pytest.raises(SystemExit) as exited:
        main([*given, "--data", str(folder / "x.npz")])
    out, err = capsys.readouterr()
    return exited.value.code or 0, out, err  # pyright: ignore[reportReturnType] a number here


ON_ARM = "--provider cpu-arm64 --arm64-folder arm"


@pytest.mark.parametrize(
    "command",
    [
        f"run m.onnx {ON_ARM}",
        f"convert m.onnx -o out.onnx --target cpu-arm64 {ON_ARM}",
        f"verify m.onnx m.onnx {ON_ARM}",
        f"check low.onnx {ON_ARM}",
    ],
)
def test_the_folder_is_an_option_for_one_command(
    capsys: pytest.CaptureFixture[str], folder: Path, command: str
) -> None:
    status, out, err = run(capsys, folder, command)
    assert (status, err) == (0, ""), out
    assert out.splitlines().count(machine.NO_TIMES) == 1
    assert machine.FOLDER not in os.environ


def test_the_option_is_stronger_than_the_environment(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machine.FOLDER, "/nowhere")
    assert run(capsys, folder, f"run m.onnx {ON_ARM}")[0] == 0
    assert os.environ[machine.FOLDER] == "/nowhere"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--arm64-folder arm", "for an Arm processor alone; found no --provider"),
        (
            "--arm64-folder arm --provider cpu",
            "found --provider cpu; expected --provider cpu-arm64",
        ),
        ("--arm64-folder m.onnx --provider cpu-arm64", "has no program called run"),
    ],
)
@pytest.mark.parametrize("command", ["run m.onnx", "convert m.onnx -o out.onnx"])
def test_a_folder_that_cannot_serve_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path, command: str, words: str, said: str
) -> None:
    status, out, err = run(capsys, folder, f"{command} {words}")
    assert (status, out) == (2, "")
    assert said in err
    assert not (folder / "out.onnx").exists()


def test_an_arm_machine_needs_no_folder(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "is_arm", lambda: True)
    status, _, err = run(capsys, folder, f"run m.onnx {ON_ARM}")
    assert status == 2
    assert "this machine has an Arm processor itself" in err
