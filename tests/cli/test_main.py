"""Ctrl-C ends a command with status 130, wherever it is, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from amp_rewrite.cli.demo import demo_model
from amp_rewrite.cli.main import main
from amp_rewrite.runtimes.ort.sessions import Session

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {W}> {
[a] h = MatMul(x, w) [b] i = Exp(h) [c] j = MatMul(i, w) [d] y = MatMul(j, w)}"""
COMMANDS = {
    "convert": "convert m.onnx -o o.onnx --data data --stress --report r.json --html p.html",
    "calibrate": "calibrate m.onnx --data data -o list.yaml",
    "localise": "localise m.onnx low.onnx --data data --report r.json",
    "tune": "tune m.onnx --data data -o list.yaml --rtol 1e-9",
    "verify": "verify m.onnx low.onnx --report r.json",
    "a dry run": "convert m.onnx --dry-run --html page.html --verify",
    "inputs": "inputs m.onnx -o made/",
    "run": "run m.onnx --data data/0.npz -o out.npz --report r.json",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which holds all that commands write, temporary files too."""
    weight = "{" + ",".join(["0.3"] * 16) + "}"
    onnx.save(onnx.parser.parse_model(TEXT.replace("{W}", weight)), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for i in range(2):
        x = np.random.default_rng(i).uniform(-1, 1, (2, 4)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{i}.npz", x=x)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert status("convert m.onnx -o low.onnx --quiet") == 0
    return tmp_path


def status(line: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(line.split())
    return int(done.value.code or 0)


@pytest.mark.share(2)
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupted_command_says_so_and_leaves_nothing(
    command: str,
    call: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, calls = Session.run, list[int]()

    def interrupted(*given: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return run(*given, **named)  # pyright: ignore[reportArgumentType] whatever it was given

    monkeypatch.setattr(Session, "run", interrupted)
    before = sorted(folder.rglob("*"))
    assert status(COMMANDS[command]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "amp-rewrite: interrupted; files that were not finished stay as they were"
    ]
    left = {path.name for path in folder.rglob("*") if path not in before}
    assert left <= ({"list.yaml.state"} if command == "tune" else set())  # for --resume


def test_an_interrupted_demo_removes_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "run", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    before = sorted(folder.rglob("*"))
    assert status("demo") == 130
    assert sorted(folder.rglob("*")) == before


FULL = Path("/dev/full")
OUTPUT_COMMANDS = {
    "version": ["--version"],
    "text": ["convert", "m.onnx", "--dry-run"],
}
PROGRAM = "from amp_rewrite.cli.main import main; main()"


def run(folder: Path, command: str, redirection: str, *, buffered: bool) -> tuple[int, str]:
    (folder / "m.onnx").write_bytes(demo_model().SerializeToString())
    words = [sys.executable, "-P", "-c", PROGRAM, *OUTPUT_COMMANDS[command]]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *words],
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": "" if buffered else "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.share(3)
@pytest.mark.skipif(not FULL.exists(), reason="the system has no full device")
@pytest.mark.parametrize("command", OUTPUT_COMMANDS)
def test_a_full_standard_output_is_one_line(command: str, tmp_path: Path) -> None:
    buffered = command == "version"
    status, err = run(tmp_path, command, f"> {FULL}", buffered=buffered)
    assert status == 1
    last = err.splitlines()[-1]
    assert "standard output" in last
    assert "No space left on device" in last
    assert "internal error" not in err
    assert "wrote" not in err


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    assert run(tmp_path, "text", ">&-", buffered=True) == (0, "")
