"""A line appears on terminals and in notebooks when something takes its time, nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from terminals import Ended, run_on_a_terminal

import amp_rewrite as amp
from amp_rewrite.base import progress as room

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[2,4] x) => (float[2,4] y) { h = Exp(x) y = Relu(h) }"""
SCRIPT = """
import sys
from amp_rewrite.base import progress
from amp_rewrite.cli.main import main
progress.PATIENCE = float(sys.argv[1])
main(sys.argv[2:])
"""
AT_ONCE = "0"

unix = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the test run in a notebook's kernel; lines appear at once. Returns what it displays."""
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # pyright: ignore[reportAttributeAccessIssue] made here
    lines: list[str] = []

    class DisplayHandle:
        def display(self, data: dict[str, str], raw: bool) -> None:
            assert raw
            lines.append(data["text/plain"])

        update = display

    display.DisplayHandle = DisplayHandle  # pyright: ignore[reportAttributeAccessIssue] made here
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(room, "_PAUSE", 0)
    monkeypatch.setattr(room, "Timer", AtOnce)
    return lines


class AtOnce:
    """A timer that does not wait, nor takes a thread."""

    def __init__(self, seconds: float, function: Any) -> None:
        self.seconds, self.start = seconds, function

    def cancel(self) -> None: ...

    join = cancel


def test_a_notebook_sees_how_far_it_is_and_nothing_in_the_end(
    notebook: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    feeds = [{"x": np.zeros((2, 4), np.float32)}] * 3
    with amp.progress_bar("calib\x1brating") as progress:
        amp.calibrate(onnx.parser.parse_model(MODEL), feeds, progress=progress)
    assert "calib\\x1brating" in notebook[0]
    assert "1/3" in notebook[1]
    assert "3/3" in notebook[-2]
    assert notebook[-1] == ""
    assert capsys.readouterr() == ("", ""), "standard error stays below the cell as a red box"


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with amp.progress_bar("saving") as progress:
        progress("far")
    assert capsys.readouterr() == ("", "")


def shown(script: str, **settings: str) -> Ended:
    """Run a script on a terminal, with a function that waits until its bar is drawn."""
    start = "import time, sys\nimport amp_rewrite as amp\nfrom amp_rewrite.base import progress\n"
    wait = "def wait(p):\n    while not p._begun: time.sleep(0.02)\n    time.sleep(0.3)\n"
    whole: dict[str, Any] = {"TERM": "xterm", **settings}
    return run_on_a_terminal(["-c", f"{start}{wait}{script}"], **whole)


@unix
def test_a_terminal_that_cannot_draw_a_line_again_gets_nothing() -> None:
    script = "progress.PATIENCE = 0\nwith amp.progress_bar('w'): time.sleep(0.3)"
    assert shown(script, TERM="dumb")[::2] == (0, "")


@unix
def test_a_narrow_terminal_gets_one_line_with_the_numbers() -> None:
    script = """progress.PATIENCE = 0
with amp.progress_bar('w') as p:
    wait(p)
    p(3, 10, 'a note that is longer than the line is wide, by far, in every case')"""
    drawn = shown(script, COLUMNS="40").drawn
    counted = [line for line in drawn.split("\r") if "3/10" in line]
    assert counted
    assert all(len(line) < 40 and "\n" not in line for line in counted)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model with 8 MiB of external weights."""
    width = 1 << 10
    names = ("w0", "w1")
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [width, width], bytes(4 * width**2), raw=True)
        for name in names
    ]
    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [1, width]) for v in "xy"]
    nodes = [
        helper.make_node("MatMul", ["x", names[0]], ["h"]),
        helper.make_node("MatMul", ["h", names[1]], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(proto, path, save_as_external_data=True, location="m.data")
    return path


def command(patience: str, *arguments: object) -> Ended:
    """Run a command whose stderr is a terminal."""
    whole = ["-c", SCRIPT, patience, *map(str, arguments)]
    return run_on_a_terminal(whole, TERM="xterm", COLUMNS="100")


@unix
def test_a_command_shows_what_it_does_and_the_line_is_gone_in_the_end(model: Path) -> None:
    status, out, drawn = command(AT_ONCE, "convert", model, "-o", model.parent / "o.onnx")
    assert status == 0
    assert "1 of 2" in out or "2 of 2" in out
    assert "writing" not in out
    assert drawn.endswith(" \r")
