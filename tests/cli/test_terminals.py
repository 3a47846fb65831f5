"""What commands print is sober without a terminal, and as wide as the terminal is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from terminals import run_on_a_terminal

from amp_rewrite.cli.demo import IMAGE, demo_model
from amp_rewrite.cli.main import main

COLOR = re.compile(r"\x1b\[[\d;]*(3|4|9|10)\d(;[\d;]*)?m")
SETTINGS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "TTY_COMPATIBLE")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(demo_model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", image=np.zeros(IMAGE, np.float32))
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def printed(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return what a command writes to stdout and stderr, which are no terminals."""
    with pytest.raises(SystemExit):
        main(line.split())
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "line",
    [
        "calibrate m.onnx --data d.npz -o c.yaml",
        "tune m.onnx --data d.npz -o t.yaml",
        "localise m.onnx --data d.npz",
        "verify m.onnx m.onnx",
    ],
)
@pytest.mark.usefixtures("folder")
def test_pipes_get_text_alone(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = printed(line, capsys)
    assert out
    assert not re.search(r"[\x1b\r]", out)
    assert err == "", "there is nothing to say, not even an empty line where a bar would be"


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.usefixtures("folder")
def test_no_color_is_respected_on_a_terminal() -> None:
    command = ["-m", "amp_rewrite", "convert", "m.onnx", "-o", "o.onnx"]
    settings = {"TERM": "xterm-256color", "NO_COLOR": "1"}
    ended = run_on_a_terminal(command, out_is_terminal=True, **settings)
    assert ended.status == 0
    assert "stays float32" in ended.drawn
    assert not COLOR.search(ended.drawn)
