"""Constraints on variables, applied after each update."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError
from amp_rewrite.optimizers import Adam, GradientDescent, Momentum, Optimizer, clip_by_value
from amp_rewrite.training.graph.training_graph import GraphValue
from amp_rewrite.training.step.step import read_step

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


def test_a_constraint_stays_in_a_step_file_and_in_float32(dense_model: Make) -> None:
    loss = amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")
    loss.graph.variable("w").constraint = lambda w: w * 0.5 + 0.25
    made = amp.build_step(GradientDescent(0.5).minimize(loss), precision="bfloat16")
    onnx.checker.check_model(ir.to_proto(made), full_check=True)
    with amp.TrainingSession(ir.to_proto(made).SerializeToString(), emulate=True) as session:
        session.run({"g": np.array([[1.0, -1.0]], np.float32)})
        np.testing.assert_array_equal(session.state_dict()["w"], [[0.5, 1.0]])
    assert read_step(made).info.precision == "bfloat16"


def test_variables_without_a_constraint_share_an_update_with_those_that_have_one() -> None:
    graph = onnx.parser.parse_graph(
        """two (float[3] g) => (float loss) {
            p = Mul(a, g)
            q = Mul(b, g)
            s = Add(p, q)
            loss = ReduceSum<keepdims=0>(s)
        }"""
    )
    for name in ("a", "b"):
        graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3, np.float32), name))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = amp.load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    loss = amp.value(model, "loss")
    loss.graph.variable("b").constraint = not_negative
    with amp.TrainingSession(GradientDescent(1.0).minimize(loss)) as session:
        session.run({"g": np.array([1.0, -1.0, 0.0], np.float32)})
        state = session.state_dict()
    np.testing.assert_array_equal(state["a"], [-1.0, 1.0, 0.0])
    np.testing.assert_array_equal(state["b"], [0.0, 1.0, 0.0])


@pytest.mark.parametrize("rule", [GradientDescent(0.1), Adam(0.1), Adam(0.1, lazy=True)])
def test_a_constraint_refuses_a_sparse_gradient(rule: Optimizer, sparse_model: Make) -> None:
    loss = amp.value(sparse_model(np.ones((4, 2), np.float32)), "loss")
    loss.graph.variable("w").constraint = not_negative
    text = "w: Cannot use a constraint function on a sparse variable."
    with pytest.raises(RuntimeError, match=text) as raised:
        rule.minimize(loss)
    assert isinstance(raised.value, AmpError)


@pytest.mark.parametrize(
    ("constraint", "kind", "message"),
    [
        (lambda w: None, TypeError, "w: a constraint must return a value; found .*NoneType"),
        (lambda w: w.graph.value("loss"), ValueError, r"found float \[\]; expected float \[1, 2\]"),
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
