"""Forms of a model that run in turn."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from amp_rewrite.numerics.measure.contest import RUNS, Budget, Times, timed_in_turn


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of a clock that only moves when a form runs."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_no_more_runs_are_taken_than_there_are(clock: list[float]) -> None:
    ran = Counter[str]()

    def form(name: str, seconds: float) -> object:
        def run() -> None:
            ran[name] += 1
            clock[0] += seconds

        return run

    said: list[str] = []
    times = {"float32": 1.2, "fast": 1.0, "near": 1.05, "slow": 3.0, "engine": 0.5}
    forms = {name: form(name, seconds) for name, seconds in times.items()}
    found = timed_in_turn(
        forms,  # pyright: ignore[reportArgumentType]
        Budget(RUNS, said.append),
        "float32",
        ["engine"],
    )
    assert RUNS - len(forms) < ran.total() <= RUNS
    assert said[-1] == f"measuring: run {ran.total()} of {RUNS}"
    assert ran["slow"] == 2  # what is clearly slower gets no more than that
    assert ran["engine"] == 2, "it cannot be chosen, and drives nothing out"
    assert ran["float32"] == ran["fast"] == ran["near"] > 8
    assert {name: taken.typical for name, taken in found.items()} == pytest.approx(times)


def test_float32_leaves_where_it_is_certainly_slower(clock: list[float]) -> None:
    ran = Counter[str]()

    def run(name: str, seconds: float) -> None:
        ran[name] += 1
        clock[0] += seconds

    forms = {
        "float32": lambda: run("float32", 3.0),
        "low": lambda: run("low", 1.0),
        "disturbed": lambda: run("disturbed", 9.0 if ran["disturbed"] % 2 == 0 else 1.0),
    }
    found = timed_in_turn(forms, Budget(), "float32")
    assert ran["float32"] == 2
    assert ran["low"] == ran["disturbed"] > 15, "one slow run drives no form out"
    assert found["disturbed"].typical == 1.0
    assert Times((3.0, 1.0, 2.0)).typical == 1.5
    assert Times((2.0,)).typical == 2.0


@pytest.mark.parametrize(("favoured", "runs"), [("default", 14), ("", 2)])
def test_what_is_favoured_leaves_where_it_is_certainly_slower(
    favoured: str, runs: int, clock: list[float]
) -> None:
    ran = Counter[str]()

    def run(name: str, seconds: float) -> None:
        ran[name] += 1
        clock[0] += seconds

    forms = {
        "float32": lambda: run("float32", 3.0),
        "low": lambda: run("low", 1.0),
        "default": lambda: run("default", 1.2 if ran["default"] < 2 else 0.95),
        "slow": lambda: run("slow", 1.3),
    }
    timed_in_turn(forms, Budget(34), "float32", favoured=favoured)
    assert (ran["default"], ran["slow"]) == (runs, 2)


def test_what_is_compared_with_stays_where_a_model_is_short(clock: list[float]) -> None:
    """In the first two runs float32 may take thrice as long by chance."""
    ran = Counter[str]()

    def run(name: str, seconds: float) -> None:
        ran[name] += 1
        clock[0] += seconds

    forms = {
        "float32": lambda: run("float32", 0.0012 if ran["float32"] < 2 else 0.0003),
        "low": lambda: run("low", 0.0004),
    }
    times = timed_in_turn(forms, Budget(), "float32")
    assert ran["float32"] == ran["low"] == 20
    assert times["float32"].typical < times["low"].typical


def test_one_form_alone_is_timed_twice(clock: list[float]) -> None:
    def run() -> None:
        clock[0] += 1

    assert timed_in_turn({"float32": run}, Budget(), "float32")["float32"].seconds == (1.0, 1.0)


def test_rounds_begin_with_another_form_each(clock: list[float]) -> None:
    order: list[str] = []
    forms = {name: lambda name=name: order.append(name) for name in "abc"}
    timed_in_turn(forms, Budget(18), "a")
    assert order == [*"aabbcc", *"bbccaa", *"ccaabb"]


def test_times_are_told_with_their_spread() -> None:
    assert str(Times((0.003, 0.001, 0.002))) == "1.5 ms (faster half of 3, 1 to 3)"
    assert str(Times(())) == "not timed"
