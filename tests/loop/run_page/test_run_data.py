"""The data of a run's page: what is in a file is looked at before it is served."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from run_pages import made_up

from amp_rewrite.loop.run_page.run_data import Layers, checked, states_of
from amp_rewrite.training.step.step_info import StateInfo, StepInfo


def test_what_is_right_comes_through_as_it_is() -> None:
    run = made_up()
    assert checked(json.loads(json.dumps(run))) == run


CHANGES: dict[str, dict[str, Any]] = {
    "no version": {"version": None},
    "another version": {"version": 2},
    "a number as title": {"title": 1},
    "a text as number": {"step": "1"},
    "a bool as number": {"step": True},
    "infinity": {"written": float("inf")},
    "an integer without end": {"step": 10**400},
    "remarks that are no list": {"missing": "a"},
    "a remark that is no text": {"missing": [1]},
    "curves that are no table": {"curves": []},
    "a curve that is missing": {"curves": {"step": []}},
    "evaluations without steps": {"evaluations": {"eval_loss": []}},
    "a text in a curve": {"evaluations": {"step": ["<b>"]}},
    "columns of two lengths": {"evaluations": {"step": [1], "eval_loss": []}},
    "layers without names": {"layers": {"zero": [], "small": [], "most": []}},
    "more names than layers": {"layers": {"variable": ["w"], "zero": [], "small": [], "most": []}},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_wrong_is_no_run(kind: str) -> None:
    assert checked({**made_up(), **CHANGES[kind]}) is None


@pytest.mark.parametrize("found", [None, [], "run", 1, {}])
def test_what_is_no_object_is_no_run(found: object) -> None:
    assert checked(found) is None


def test_names_are_printable_and_what_nobody_knows_is_left_out() -> None:
    hostile = "\x1b[31m\u202ename\x00"
    run = checked({**made_up(hostile), "other": "</script>", "reason": hostile})
    assert run is not None
    assert run["title"] == run["reason"] == "\\x1b[31m\\u202ename\\x00"
    assert "other" not in run


def test_settings_are_numbers_and_texts_and_a_page_without_any_is_one_too() -> None:
    given = {"rate": 0.1, "no": True, "list": [1], "huge": 10**400, "a\x00": "\x1b[1m", "of": None}
    run = checked({**made_up(), "settings": given})
    assert run is not None
    assert run["settings"] == {"rate": 0.1, r"a\x00": r"\x1b[1m", "of": None}
    before = made_up()
    del before["settings"]
    run = checked(before)
    assert run is not None
    assert run["settings"] == {}


def test_the_shares_of_all_layers_weigh_as_much_as_their_elements() -> None:
    states = tuple(
        StateInfo(name, f"{name}:next", "variable", "float", shape)
        for name, shape in (("w", (3, 1)), ("b", (1,)))
    )
    layers = Layers()
    layers.begin(StepInfo(states, ("x",), {}, gradients={"w": "g", "b": "h"}))
    assert layers.columns()["variable"] == []
    zero, small = layers.note(np.array([[0.5, 0.25], [1.0, 0.0]], np.float32))
    assert (zero, small) == (0.625, 0.1875)
    layers.note(np.array([[0.5, 0.0], [0.0, 0.5]], np.float32))
    assert layers.columns() == {
        "variable": ["w", "b"],
        "zero": [0.5, 0.0],
        "small": [0.0, 0.5],
        "most": [0.25, 0.5],
    }


@pytest.mark.parametrize(
    ("failed", "stopped", "expected"),
    [
        (None, None, ("finished", "")),
        (None, "enough", ("stopped", "enough")),
        (KeyboardInterrupt(), None, ("stopped", "interrupted")),
        (ValueError("two\nlines"), "enough", ("failed", "ValueError: two lines")),
    ],
)
def test_how_a_run_ended(failed: Any, stopped: Any, expected: tuple[str, str]) -> None:
    class Ended:
        pass

    run: Any = Ended()
    run.failed, run.stopped = failed, stopped
    assert states_of(run) == expected
