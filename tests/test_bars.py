"""Bars in notebooks and on terminals, and nothing elsewhere."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from terminals import run_on_a_terminal

import amp_rewrite as amp
from amp_rewrite import bars as room
from amp_rewrite.errors import OptionError

MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[2,4] x) => (float[2,4] y) { h = Exp(x) y = Relu(h) }"""


class Cell:
    """The output of a cell: what it showed, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/html"])


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Return the cell of a notebook, in whose kernel the test runs."""
    found, ipython, display = Cell(), ModuleType("IPython"), ModuleType("IPython.display")

    def shows(data: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw
        assert display_id
        found.shown.append(data["text/html"])
        return found

    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # pyright: ignore[reportAttributeAccessIssue] made here
    display.display = shows  # pyright: ignore[reportAttributeAccessIssue] made here
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(room, "_PAUSE", 0)
    return found


def test_a_notebook_sees_how_far_it_is_and_nothing_in_the_end(cell: Cell) -> None:
    feeds = [{"x": np.zeros((2, 4), np.float32)}] * 3
    with amp.progress_bar("cali<b>rating") as progress:
        amp.calibrate(onnx.parser.parse_model(MODEL), feeds, progress=progress)
    assert "cali&lt;b&gt;rating" in cell.shown[1]
    assert 'value="1" max="3"' in cell.shown[2]
    assert "3/3" in cell.shown[-2]
    assert cell.shown[-1] == ""


def test_what_functions_say_is_shown(cell: Cell) -> None:
    model = onnx.parser.parse_model(MODEL)
    with amp.progress_bar("verifying") as progress:
        amp.verify(model, model, stress=False, progress=progress)
    assert "verifying: feed 1" in cell.shown[2]


def test_the_bar_goes_when_the_work_fails(cell: Cell) -> None:
    with pytest.raises(ZeroDivisionError), amp.progress_bar("failing"):
        raise ZeroDivisionError
    assert cell.shown[-1] == ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((room.Written(3, 10),), ("", 3, 10)),
        ((room.Step(4, None, 9.6),), ("4 trials, none holds yet, 10 s left", None, None)),
        ((room.Step(4, 2, 0.4),), ("4 trials, best 2 nodes, 0 s left", None, None)),
        ((room.Progress(epoch=1, step=7, loss=0.5),), ("epoch 2, step 7, loss 0.5", None, None)),
        ((2, None), ("", 2, None)),
    ],
)
def test_every_function_s_progress_is_understood(
    given: tuple[Any, ...], text: tuple[Any, ...]
) -> None:
    assert tuple(room._at(given)) == text


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with amp.progress_bar("saving") as progress:
        progress("far")
    assert capsys.readouterr() == ("", "")


def test_the_work_is_a_text() -> None:
    wrong: Any = 3
    with pytest.raises(OptionError, match="work"):
        amp.progress_bar(wrong)


SCRIPT = """
import amp_rewrite as amp
with amp.progress_bar("measuring") as progress:
    progress(1, 2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_sees_it_too() -> None:
    ended = run_on_a_terminal(["-c", SCRIPT])
    assert ended.status == 0
    assert "measuring" in ended.drawn
