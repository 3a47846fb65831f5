"""Curves in bounded room: nothing is lost but resolution."""

from __future__ import annotations

import json
import math

import pytest

from amp_rewrite.loop.run_page.history import MOST, History, Point, mean_of, short


def point(step: int, loss: float = 1.0, **other: float) -> Point:
    made = Point(step, step / 10, **other)  # pyright: ignore[reportArgumentType]
    made.loss.add(loss)
    return made


def test_points_are_joined_in_pairs_and_none_of_their_steps_is_lost() -> None:
    history, count = History(), 5 * MOST + 3
    for step in range(1, count + 1):
        history.add(point(step, step, skipped=step % 5 == 0, examples=8, busy=0.5))
    assert MOST / 2 <= len(history.points) <= MOST
    assert history.width == 8
    assert sum(p.steps for p in history.points) == count
    assert {p.steps for p in history.points[:-1]} == {8}
    curves = history.curves()
    assert curves["step"][0] == 8
    assert curves["step"][-1] == count
    assert curves["loss"][0] == 4.5
    assert sum(curves["skipped"]) == count // 5
    assert set(curves["throughput"]) == {16}
    assert {len(column) for column in curves.values()} == {len(history.points)}


def test_what_is_not_finite_counts_in_no_mean() -> None:
    history = History()
    history.add(point(1, math.nan))
    history.width = 2
    history.add(point(2, math.inf))
    history.points[-1].loss.add(3.0)
    assert history.curves()["loss"] == [3]
    history.add(point(3, math.nan))
    assert history.curves()["loss"] == [3, None]
    json.dumps(history.curves(), allow_nan=False)


def test_evaluations_are_thinned_out_and_the_last_ones_are_there() -> None:
    history = History()
    for step in range(1, 3 * MOST):
        history.evaluated(step, {"eval_loss": 1 / step})
    steps = history.evaluation_curves()["step"]
    assert len(steps) <= MOST
    assert steps == sorted(steps)
    assert steps[-1] == 3 * MOST - 1


def test_a_number_that_only_some_evaluations_found_is_none_in_the_others() -> None:
    history = History()
    history.evaluated(1, {"eval_loss": 1.0})
    history.evaluated(2, {"eval_loss": 0.5, "eval_f1": math.nan})
    assert history.evaluation_curves() == {
        "step": [1, 2],
        "eval_loss": [1.0, 0.5],
        "eval_f1": [None, None],
    }


def test_a_history_comes_back_from_json_and_goes_on() -> None:
    history = History()
    for step in range(1, MOST + 2):
        history.add(point(step, loss_scale=2.0, learning_rate=0.1))
    history.evaluated(5, {"eval_loss": 1.0})
    again = History.restored(json.loads(json.dumps(history.state(), allow_nan=False)))
    assert again.points == history.points
    assert again.curves() == history.curves()
    assert again.evaluation_curves() == history.evaluation_curves()
    again.add(point(MOST + 2))
    assert again.points[-1].steps == 2


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"points": 1, "width": 1, "evaluations": []},
        {"points": [{}], "width": 1, "evaluations": []},
        {"points": [{"step": 1, "seconds": 0, "loss": 1}], "width": 1, "evaluations": []},
        {"points": [], "width": 1, "evaluations": [1]},
    ],
)
def test_what_is_no_history_begins_anew(state: dict[str, object]) -> None:
    assert History.restored(state).curves()["step"] == []


def test_numbers_are_short_and_shares_are_weighed() -> None:
    assert short(1 / 3) == 0.333333
    assert short(math.inf) is None
    assert mean_of([0.5, 1.0], [3, 1]) == 0.625
    assert mean_of([], []) == 0
