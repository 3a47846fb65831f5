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
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.rewriting import scaling
from amp_rewrite.rewriting.paint import pipeline
from amp_rewrite.rewriting.scaling.needs import Needs


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


def test_what_would_be_low_if_all_fitted_is_not_colored_again(monkeypatch: pytest.MonkeyPatch):
    rounds = counted(monkeypatch, pipeline, "paint_once")
    amp.rewrite(residual_blocks(3), overflow="keep")
    kept = len(rounds)
    assert scaled_sets(3) == 3
    assert len(rounds) == 2 * kept + 1


def test_estimates_are_asked_for_what_would_grow_alone(monkeypatch: pytest.MonkeyPatch):
    asked = counted(monkeypatch, Needs, "roof")
    assert scaled_sets(3) == 3
    assert not asked


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


def test_many_sets_take_as_much_each_as_few(monkeypatch: pytest.MonkeyPatch):
    names = counted(monkeypatch, TypeGraph, "node_name")
    few, of_few = lines_of_scaling(4), len(names)
    many = lines_of_scaling(16)
    assert many < 4.3 * few
    assert len(names) - of_few < 4.3 * of_few
