"""Constraints on variables, applied after each update."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError
from amp_rewrite.optimizers import Adam, Momentum, Optimizer, clip_by_value
from amp_rewrite.training.graph.training_graph import GraphValue

Make = Callable[..., ir.Model]
WRAPS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "plain": lambda o: o,
    "if": amp.LossScaleOptimizer,
    "select": lambda o: amp.LossScaleOptimizer(o, conditional="select"),
}


def not_negative(w: GraphValue) -> GraphValue:
    return clip_by_value(w, 0.0, 3.0e38)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_constraint_is_applied_after_a_dense_update(
    wrap: Callable[[Optimizer], Optimizer], dense_model: Make
) -> None:
    loss = amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")
    loss.graph.variable("w").constraint = not_negative
    op = wrap(Momentum(1.0, 0.5)).minimize(loss)
    with amp.TrainingSession(op) as session:
        session.run({"g": np.array([[3.0, 0.5]], np.float32)})
        state = session.state_dict()
        np.testing.assert_array_equal(state["w"], [[0.0, 0.5]])
        np.testing.assert_array_equal(state["w/Momentum"], [[3.0, 0.5]])  # not a variable
        session.run({"g": np.array([[-4.0, 0.0]], np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [[2.5, 0.25]])


def test_a_skipped_step_skips_the_constraint(dense_model: Make) -> None:
    loss = amp.value(dense_model(np.full((1, 2), -1.0, np.float32)), "loss")
    loss.graph.variable("w").constraint = not_negative
    with amp.TrainingSession(amp.LossScaleOptimizer(Adam()).minimize(loss)) as session:
        session.run({"g": np.array([[np.inf, 0.0]], np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [[-1.0, -1.0]])
        session.run({"g": np.zeros((1, 2), np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [[0.0, 0.0]])


@pytest.mark.parametrize(
    ("constraint", "kind", "message"),
    [
        (lambda w: None, TypeError, "w: a constraint must return a value .*; found .*NoneType"),
        (
            lambda w: w.graph.value("loss"),
            ValueError,
            r"found float32 \[\]; expected float32 \[1, 2\]",
        ),
    ],
)
def test_a_constraint_returns_a_value_like_the_variable(
    constraint: Any, kind: type[Exception], message: str, dense_model: Make
) -> None:
    loss = amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")
    loss.graph.variable("w").constraint = constraint
    with pytest.raises(kind, match=message) as raised:
        Adam().minimize(loss)
    assert isinstance(raised.value, AmpError)
