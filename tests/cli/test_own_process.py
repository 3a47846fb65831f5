"""A command whose engine ends the process says which model that was; all else passes through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,4] x) => (float[2,4] y) { y = Exp(x) }"""
COMMANDS = (
    "run m.onnx --data x.npz",
    "convert m.onnx -o o.onnx --data x.npz",
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ends processes by signals")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    (tmp_path / "runtime" / "onnxruntime").mkdir(parents=True)
    return tmp_path


def started(line: str, folder: Path, runtime: str | None = None) -> subprocess.Popen[str]:
    """Start a command; its onnxruntime is a program that is given."""
    environment = dict(os.environ)
    if runtime is not None:
        (folder / "runtime" / "onnxruntime" / "__init__.py").write_text(runtime, "utf-8")
        environment["PYTHONPATH"] = str(folder / "runtime")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "amp_rewrite", *line.split()],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("line", COMMANDS)
def test_a_model_that_ends_the_engine_is_named_in_one_line(line: str, folder: Path) -> None:
    ends = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    command = started(line, folder, ends)
    out, error = command.communicate(timeout=60)
    assert command.returncode == 1
    assert not out
    (said,) = error.splitlines()
    assert said.startswith("amp-rewrite: m.onnx: the process that ran the model was ended; ")
    assert "a segmentation fault (SIGSEGV)" in said
    assert {p.name for p in folder.iterdir()} == {"m.onnx", "x.npz", "runtime"}


def test_what_the_command_says_and_its_status_pass_through(folder: Path) -> None:
    command = started("run m.onnx --data x.npz --provider none", folder)
    out, error = command.communicate(timeout=60)
    assert (command.returncode, out) == (1, "") or command.returncode == 2
    assert error.startswith("amp-rewrite: ")
    assert len(error.splitlines()) == 1


def test_what_ends_the_command_ends_its_process(folder: Path) -> None:
    waits = (
        "import os, pathlib, time\n"
        "pathlib.Path('at').write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    command = started("run m.onnx --data x.npz", folder, waits)
    until = time.monotonic() + 30
    while not (folder / "at").exists() or not (folder / "at").read_text("utf-8"):
        assert time.monotonic() < until
        time.sleep(0.05)
    worker = int((folder / "at").read_text("utf-8"))
    assert worker != command.pid
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=30)
    assert command.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
