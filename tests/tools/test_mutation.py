"""Mutants: what is drawn, which tests try them, and how many survive."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from code_changes import changed_code
from mutants import Mutant, sample
from trials import Trace

ROOT = Path(__file__).resolve().parents[2]

needs_operators = pytest.mark.skipif(
    find_spec("cosmic_ray") is None, reason="cosmic-ray, which the extra dev brings, is not here"
)

SOURCE = '''"""A module."""

LIMIT = 3
DOUBLES = [2 * x for x in range(LIMIT)]


def first(xs: list[int] | None, start: int = 1) -> int | None:
    if xs is None:
        return start - 1
    found = [
        x
        for x in xs
        if x > LIMIT
    ]
    return found[0] if found else None


class Box:
    size = 5
    pick = staticmethod(lambda x: x + 7)
'''


@needs_operators
def test_every_place_is_drawn_once_and_annotations_never(tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(SOURCE, "utf-8")
    mutants = sample(tmp_path, ["box.py"], 100, seed=1)
    assert mutants == sample(tmp_path, ["box.py"], 100, seed=1)
    drawn = sample(tmp_path, ["box.py"], 5, seed=1)
    assert len(drawn) == 5
    assert {m.source for m in drawn} <= {m.source for m in mutants}
    lines = {m.line for m in mutants}
    assert lines == {3, 4, 7, 8, 9, 13, 15, 19, 20}
    assert all("list[int] | None" in m.after for m in mutants if m.line == 7)
    assert {m.lines for m in mutants if m.line == 13} == {(10, 14)}
    assert {m.lines for m in mutants if m.line == 8} == {(8, 8)}
    assert {m.after for m in mutants if m.line == 8} <= {"if xs is not None:", "if not xs is None:"}


@pytest.mark.parametrize(
    ("before", "after", "functions"),
    [
        ("start - 1", "start + 1", ["first"]),
        ("x > LIMIT", "x < LIMIT", ["first", "first.<locals>.<listcomp>"]),
        ("x + 7", "x - 7", ["Box.<lambda>"]),
        ("start: int = 1", "start: int = 2", None),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("2 * x", "2 + x", None),
        ("size = 5", "size = 6", None),
    ],
)
def test_functions_are_changed_in_place_and_what_runs_on_import_is_not(
    before: str, after: str, functions: list[str] | None
) -> None:
    changed = changed_code(SOURCE, SOURCE.replace(before, after), "box.py")
    assert (changed and [code.co_qualname for code in changed]) == functions
    assert changed is None or [c.co_qualname for c in changed.values()] == functions


def test_the_tests_that_come_past_a_line_try_it_the_files_own_first() -> None:
    mutant = Mutant("amp_rewrite/box.py", (10, 14), 12, "", "", "")
    tests = {
        "tests/test_box.py::test_slow": ({12, 13}, 3.0),
        "tests/test_box.py::test_other": ({9, 15}, 0.1),
        "tests/test_shop.py::test_long": ({14}, 9.0),
        "tests/test_shop.py::test_fast": ({10}, 0.2),
    }
    trace = Trace(
        lines={test: {("/box.py", n) for n in lines} for test, (lines, _) in tests.items()},
        seconds={test: seconds for test, (_, seconds) in tests.items()},
    )
    assert trace.tests_of(mutant, "/box.py", 5.0) == [
        "tests/test_box.py::test_slow",
        "tests/test_shop.py::test_fast",
    ]
    assert trace.tests_of(mutant, "/box.py", 1.0) == ["tests/test_box.py::test_slow"]
    trace.imported.add(("/box.py", 11))  # what the module makes of it, any test of it may read
    assert "tests/test_box.py::test_other" in trace.tests_of(mutant, "/box.py", 5.0)


@pytest.mark.slow  # half a minute for each file
@needs_operators
@pytest.mark.parametrize("part", ["amp_rewrite/training/optimizers/clipping.py"])
def test_at_most_a_tenth_of_a_sample_survives(part: str) -> None:
    command = [sys.executable, "-P", "tools/mutation/mutate.py", part, "--number", "30"]
    done = subprocess.run(
        [*command, "--seed", "3"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert part in done.stdout
