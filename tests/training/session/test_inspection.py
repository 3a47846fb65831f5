"""Gradients without an update, in every kind of step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from low_steps import NETWORKS, batch
from onnx import parser
from sick_steps import BATCH, scaled, step

import amp_rewrite as amp
from amp_rewrite.errors import FeedError, OptionError
from amp_rewrite.optimizers import SGD, Adam, group

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")


def gradient() -> np.ndarray[Any, Any]:
    """Return what numpy makes of the gradient of w."""
    x, w = BATCH["x"].astype(np.float64), np.arange(1.0, 9).reshape(4, 2)
    e = np.exp(x @ w)
    return x.T @ (2 / e.size * (e * 1e-5) * 1e-5 * e)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (lambda: step(), {}),
        (lambda: step(optimizer=scaled(1024.0)), {}),
        (lambda: step(optimizer=scaled()), {"precision": "float16", "emulate": True}),
        (lambda: step(accumulate=3), {}),
        (lambda: step(optimizer=SGD(0.1, global_clipnorm=1e-9)), {}),
    ],
)
def test_gradients_are_those_of_the_loss(made: Any, options: Any) -> None:
    with amp.TrainingSession(made(), **options) as session:
        session.run(BATCH)
        before = session.state_dict()
        found = session.gradients(BATCH)
        after = session.state_dict()
        assert session.gradients(BATCH)["w"].tobytes() == found["w"].tobytes()
    assert list(found) == ["w"]
    np.testing.assert_allclose(found["w"], gradient(), rtol=0.03 if options else 1e-3, atol=1e-10)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_gradient_of_a_table_is_dense() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (int64[N] x) => (float loss) <float[3, 2] table = {1, 2, 3, 4, 5, 6}> {
            rows = Gather (table, x)
            s = Mul (rows, rows)
            loss = ReduceSum <keepdims = 0> (s)
        }"""
    model = amp.load(parser.parse_model(text))
    with amp.TrainingSession(SGD(0.1).minimize(amp.value(model, "loss"))) as session:
        found = session.gradients({"x": np.array([2, 0, 2])})
    np.testing.assert_array_equal(found["table"], [[2, 4], [0, 0], [20, 24]])


def test_a_step_of_two_backward_passes_does_not_say_which_gradients_it_has() -> None:
    model = step().graph.source
    loss = amp.value(model, "loss")
    both = group(
        SGD(0.1).minimize(loss, var_list="w"), Adam(0.1).minimize(loss * loss, var_list="tiny")
    )
    with amp.TrainingSession(both) as session, pytest.raises(OptionError, match="several backward"):
        session.gradients(BATCH)


def test_feeds_are_checked_as_in_a_run() -> None:
    with amp.TrainingSession(step()) as session:
        no_mapping: Any = [1]
        for look in (session.gradients, session.diagnose):
            with pytest.raises(FeedError, match="must be a mapping"):
                look(no_mapping)
            with pytest.raises(FeedError, match="wrong shape"):
                look({**BATCH, "x": BATCH["x"][:, :3]})
        with pytest.raises(FeedError, match="not fed"):
            session.gradients({"x": BATCH["x"]})


def test_a_diagnosis_of_the_last_run_begins_where_it_began() -> None:
    with amp.TrainingSession(step(optimizer=SGD(1e30))) as session:
        session.run(BATCH)
        assert session.diagnose(BATCH, last=True).finite
        now = session.diagnose(BATCH).first
    assert now is not None
    assert now.part == "forward"


def test_gradients_leave_running_statistics_as_they_are() -> None:
    loss = amp.value(amp.load(NETWORKS["cnn"]()), "loss")
    with amp.TrainingSession(SGD(0.1).minimize(loss)) as session:
        before = session.state_dict()
        session.gradients(batch("cnn"))
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
