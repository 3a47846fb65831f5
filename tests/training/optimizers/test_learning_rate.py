"""Learning-rate schedules, step by step, against their formulas."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite import optimizers
from amp_rewrite.optimizers import (
    CosineSchedule,
    ExponentialDecay,
    GradientDescent,
    LinearWarmUp,
    Schedule,
)
from amp_rewrite.training.graph.training_graph import value
from amp_rewrite.training.session.training_session import TrainingSession


def cosine(step: float) -> float:
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(step, 8) / 8))


SCHEDULES: dict[str, tuple[Schedule, Callable[[int], float]]] = {
    "cosine": (CosineSchedule(0.5, 8, 0.1), lambda t: 0.5 * cosine(t)),
    "warm-up": (LinearWarmUp(0.5, 4), lambda t: 0.5 * min(t / 4, 1)),
    "warm-up from a tenth": (
        LinearWarmUp(0.5, 4, 0.1),
        lambda t: 0.5 * (0.1 + 0.9 * min(t / 4, 1)),
    ),
    "warm-up, then cosine": (
        LinearWarmUp(CosineSchedule(0.5, 8, 0.1), 4),
        lambda t: 0.5 * min(t / 4, 1) * cosine(max(t - 4, 0)),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_follow_the_formula(name: str, dense_model: Callable[..., ir.Model]) -> None:
    schedule, expected = SCHEDULES[name]
    optimizer = GradientDescent(schedule)
    assert optimizer.learning_rate is schedule
    model = dense_model(np.zeros((1, 2), np.float32))
    g = np.ones((1, 2), np.float32)
    total = 0.0
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        for step in range(20):
            rate = session.run({"g": g}, ["learning_rate"])["learning_rate"]
            np.testing.assert_allclose(rate, expected(step), rtol=1e-5, atol=1e-8)
            total += expected(step)
        np.testing.assert_allclose(session.state_dict()["w"], -total * g, rtol=1e-5)


def test_a_schedule_goes_on_from_a_new_rate(dense_model: Callable[..., ir.Model]) -> None:
    optimizer = GradientDescent(ExponentialDecay(1.0, 1, 0.5))
    model = dense_model(np.zeros((1, 2), np.float32))
    feeds = {"g": np.ones((1, 2), np.float32)}
    with TrainingSession(optimizer.minimize(value(model, "loss"))) as session:
        rates = [float(session.run(feeds, ["learning_rate"])["learning_rate"])]
        optimizer.learning_rate = 8.0
        rates += [float(session.run(feeds, ["learning_rate"])["learning_rate"]) for _ in range(2)]
    assert rates == [1.0, 4.0, 2.0]
    with pytest.raises(ValueError, match="a schedule is part of the step"):
        optimizer.learning_rate = CosineSchedule(1.0, 2)


IMPOSSIBLE: dict[str, Callable[[], Any]] = {
    "learning_rate": lambda: CosineSchedule(float("nan"), 2),
    "decay_steps": lambda: ExponentialDecay(0.1, 0, 0.5),
    "decay_rate": lambda: ExponentialDecay(0.1, 1, 0.0),
    "alpha": lambda: CosineSchedule(0.1, 10, -1.0),
    "warm_up_steps": lambda: LinearWarmUp(0.1, 0),
    "start_factor": lambda: LinearWarmUp(0.1, 5, 1.5),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_parameters_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"impossible {name}"):
        IMPOSSIBLE[name]()


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown schedule; found 'Zigzag'"):
        optimizers.Adam.from_config({"learning_rate": {"class_name": "Zigzag"}})
