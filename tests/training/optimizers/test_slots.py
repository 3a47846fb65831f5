"""Weights that are added to an optimizer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import GradientDescent


def loss_of(dense_model: Any) -> Any:
    return amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")


@pytest.mark.parametrize("wrap", [lambda o: o, LossScaleOptimizer], ids=["plain", "wrapped"])
def test_a_weight_that_is_added_is_saved_and_updated_with_the_step(
    wrap: Any, dense_model: Any
) -> None:
    loss = loss_of(dense_model)
    optimizer = wrap(GradientDescent(0.5))
    pairs = optimizer.compute_gradients(loss)
    weight = optimizer.add_weight("norm/average", (), np.float64, initializer=2.0)
    assert (weight.name, weight.dtype.name, weight.shape) == ("norm/average", "DOUBLE", ())
    op = optimizer.apply_gradients(pairs)
    assert weight in optimizer.variables()
    doubled = loss.graph.builder.mul(weight.value, 2.0)
    op = replace(op, updates={**op.updates, weight.name: doubled})
    with amp.TrainingSession(op) as session:
        session.run({"g": np.ones((1, 2), np.float32)})
        assert session.state_dict()["norm/average"] == 4.0
        assert 4.0 in [float(w) for w in optimizer.get_weights() if not w.shape]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"name": 3}, TypeError, "a weight needs a name; found 3"),
        ({"name": ""}, TypeError, "a weight needs a name"),
        ({"shape": 2.5}, TypeError, "not the shape and the type of a weight"),
        ({"shape": ("a",)}, TypeError, "not the shape and the type of a weight"),
        ({"dtype": "float31"}, TypeError, "float31"),
        ({"initializer": "random"}, ValueError, "unknown initializer; found 'random'"),
        ({"shape": (2,), "initializer": [1, 2, 3]}, ValueError, "an initializer that does not fit"),
        ({"initializer": object()}, ValueError, "an initializer that does not fit"),
    ],
)
def test_an_impossible_weight_is_refused(
    arguments: Any, kind: type[Exception], message: str, dense_model: Any
) -> None:
    optimizer = GradientDescent()
    optimizer.compute_gradients(loss_of(dense_model))
    with pytest.raises(kind, match=message) as raised:
        optimizer.add_weight(**{"name": "extra", **arguments})
    assert isinstance(raised.value, AmpError)
