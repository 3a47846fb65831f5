"""Standard output that is full or closed: one line, and nothing that is said to be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amp_rewrite.cli.demo import demo_model

FULL = Path("/dev/full")
COMMANDS = {
    "version": ["--version"],
    "text": ["convert", "m.onnx", "--dry-run"],
}
PROGRAM = "from amp_rewrite.cli.main import main; main()"


def run(folder: Path, command: str, redirection: str, *, buffered: bool) -> tuple[int, str]:
    (folder / "m.onnx").write_bytes(demo_model().SerializeToString())
    words = [sys.executable, "-P", "-c", PROGRAM, *COMMANDS[command]]
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
@pytest.mark.parametrize("command", COMMANDS)
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
