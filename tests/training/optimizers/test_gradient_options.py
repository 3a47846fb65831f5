"""TensorFlow's options of a backward pass, by position and by name, through every wrapper."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import amp_rewrite as amp
from amp_rewrite.distributed import shard_context
from amp_rewrite.optimizers import GradientDescent, Optimizer, OptimizerWrapper

OPTIONS = ["gate_gradients", "aggregation_method", "colocate_gradients_with_ops"]
WRAPS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda o: o,
    "wrapped": OptimizerWrapper,
    "scaled": lambda o: amp.LossScaleOptimizer(o, 8.0),
    "on shards": amp.CrossShardOptimizer,
    "two deep": lambda o: amp.LossScaleOptimizer(amp.CrossShardOptimizer(o), 8.0),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_they_stand_where_they_do_in_tensorflow(
    wrap: Callable[[Any], Any], dense_model: Callable[..., Any]
) -> None:
    optimizer = wrap(GradientDescent(1.0))
    names = ["loss", "var_list", *OPTIONS, "grad_loss"]
    assert list(inspect.signature(optimizer.compute_gradients).parameters) == names
    minimized = ["loss", "global_step", "var_list", *OPTIONS, "name", "grad_loss"]
    found = list(inspect.signature(optimizer.minimize).parameters)
    assert found == [*minimized, "accumulate"]
    loss = amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")
    with shard_context():
        ((gradient, variable),) = optimizer.compute_gradients(
            loss, ["w"], Optimizer.GATE_GRAPH, None, False, loss * 0.0 + 2.0
        )
        op = optimizer.apply_gradients([(gradient, variable)])
    with amp.TrainingSession(op) as session:
        session.run({"g": np.array([[3, -4]], np.float32)})
        assert session.state_dict()["w"].tolist() == [[-5, 9]]
