"""What scaling a model takes: two paintings, few estimates, and as much a node in a long one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from residual_models import residual_blocks

import amp_rewrite as amp
from amp_rewrite.rewriting import scaling


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[object]:
    """Let calls of a function be counted; return the list that has an entry for each."""
    function, calls = getattr(owner, name), list[object]()

    def counting(*args: Any, **named: Any) -> Any:
        calls.append(None)
        return function(*args, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def scaled_sets(count: int, layers: int = 4) -> int:
    found = amp.rewrite(residual_blocks(count, layers), overflow="scale")
    assert found.scaling is not None
    return len(found.scaling.sets)


def lines_of_scaling(count: int) -> int:
    """Return how many lines of the scaling's own files a rewrite runs."""
    lines, folder = Counter[str](), str(Path(scaling.__file__).parent)

    def note(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        lines[event] += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        assert scaled_sets(count, layers=2) == count
    finally:
        sys.settrace(before)
    return lines["line"]
