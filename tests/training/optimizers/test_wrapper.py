"""Wrappers have every member of Optimizer, and call what a user's class has in its place."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.distributed import shard_context
from amp_rewrite.optimizers import Adam, GradientDescent, Optimizer, OptimizerWrapper

Wrap = Callable[[Optimizer], Optimizer]

DERIVED = {
    "compute_gradients",
    *("GATE_GRAPH", "GATE_NONE", "GATE_OP", "apply_gradients", "get_name", "get_updates"),
    *("get_weights", "lr", "member", "minimize", "set_weights"),
}
"""Members that are made of other members, constants, and what is asked of plain optimizers."""
SET_WHEN_MADE = {"scales_loss", "supports_loss_scaling"}
MEMBERS = {
    name: member
    for kind in reversed(Optimizer.__mro__[:-1])  # all but object
    for name, member in vars(kind).items()
}
"""Optimizer's own members, and those of the classes that it is made of."""

WRAPS: dict[str, Wrap] = {
    "plain": OptimizerWrapper,
    "fixed": lambda o: amp.LossScaleOptimizer(o, 8.0),
    "dynamic": amp.LossScaleOptimizer,
    "shards": amp.CrossShardOptimizer,
    "scale around shards": lambda o: amp.LossScaleOptimizer(amp.CrossShardOptimizer(o)),
    "shards around scale": lambda o: amp.CrossShardOptimizer(amp.LossScaleOptimizer(o)),
    "sums around shards": lambda o: amp.CrossShardOptimizer(OptimizerWrapper(o), "sum"),
}


class Halved(Adam):
    """Halves gradients in `apply_gradients` and in `get_gradients`, as users of TensorFlow do."""

    def apply_gradients(self, grads_and_vars: Any, global_step=None, name=None, **options: Any):
        pairs = [(gradient * 0.5, variable) for gradient, variable in grads_and_vars]
        return super().apply_gradients(pairs, global_step, name, **options)

    def get_gradients(self, loss, params):
        return [gradient * 0.5 for gradient in super().get_gradients(loss, params)]


class Doubling(GradientDescent):
    """A collective of a user's own: what it sums over is twice what it was given."""

    def reduce_gradients(self, grads_and_vars: Any):
        return [(gradient * 2.0, variable) for gradient, variable in grads_and_vars]


class Compressing(OptimizerWrapper):
    """Stands for a collective that a loss scale would disturb."""

    supports_loss_scaling = False


@pytest.fixture(autouse=True)
def context():
    """Build inside a shard context, so that there is no warning."""
    with shard_context():
        yield


def test_every_member_of_optimizer_is_the_inner_ones_or_is_made_of_such() -> None:
    members = {name for name in MEMBERS if not name.startswith("_")}
    assert members - set(vars(OptimizerWrapper)) == DERIVED | SET_WHEN_MADE
    assert set(vars(OptimizerWrapper(Adam()))) == {"_inner", *SET_WHEN_MADE}


@pytest.mark.share(2)
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_apply_gradients_of_the_users_own_is_called(
    wrap: Wrap, dense_model: Callable[..., ir.Model]
) -> None:
    states = []
    for make in (lambda: Halved(0.1), lambda: wrap(Halved(0.1)), lambda: wrap(Adam(0.1))):
        model = dense_model(np.ones((1, 2), np.float32))
        with amp.TrainingSession(make().minimize(amp.value(model, "loss"))) as session:
            session.run({"g": np.array([[3.0, -4.0]], np.float32)})
            states.append(session.state_dict()["w/Adam"])
    np.testing.assert_array_equal(states[0], states[1])
    np.testing.assert_allclose(2 * states[0], states[2], rtol=1e-6)


@pytest.mark.share(2)
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_get_gradients_of_the_users_own_is_called(
    wrap: Wrap, dense_model: Callable[..., ir.Model]
) -> None:
    fed = np.array([[3.0, -4.0]], np.float32)
    for kind, factor in ((Halved, 0.5), (Adam, 1.0)):
        optimizer = wrap(kind(0.1))
        loss = amp.value(dense_model(np.ones((1, 2), np.float32)), "loss")
        (gradient,) = optimizer.get_gradients(loss, ["w"])
        op = optimizer.apply_gradients([(gradient, "w")])
        with amp.TrainingSession(op) as session:
            out = session.run({"g": fed}, [gradient.name, "loss"])
        np.testing.assert_array_equal(out[gradient.name], fed * factor)
        assert out["loss"] == fed.sum()


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_collective_of_the_users_own_reduces_once(
    wrap: Wrap, dense_model: Callable[..., ir.Model]
) -> None:
    model = dense_model(np.zeros((1, 2), np.float32))
    op = wrap(Doubling(1.0)).minimize(amp.value(model, "loss"))
    fed = np.array([[3.0, -4.0]], np.float32)
    with amp.TrainingSession(op) as session:
        session.run({"g": fed})
        np.testing.assert_array_equal(session.state_dict()["w"], -2 * fed)


def test_a_collective_that_bears_no_loss_scale_is_refused_in_both_orders() -> None:
    text = "Loss scaling is not supported with this collective; .*Compressing, whose"
    with pytest.raises(ValueError, match=text) as outside:
        Compressing(amp.CrossShardOptimizer(amp.LossScaleOptimizer(Adam())))
    with pytest.raises(ValueError, match="Loss scaling is not supported") as inside:
        amp.LossScaleOptimizer(amp.CrossShardOptimizer(Compressing(Adam())))
    assert isinstance(outside.value, amp.AmpError)
    assert isinstance(inside.value, amp.AmpError)


def test_whether_a_collective_bears_a_loss_scale_is_asked_again_when_gradients_are_applied(
    dense_model: Callable[..., ir.Model],
) -> None:
    inside = OptimizerWrapper(Adam())
    optimizer = amp.LossScaleOptimizer(amp.CrossShardOptimizer(inside))
    pairs = optimizer.compute_gradients(amp.value(dense_model(np.ones((1, 2), np.float32)), "loss"))
    inside.supports_loss_scaling = False
    with pytest.raises(ValueError, match="Loss scaling is not supported with this collective"):
        optimizer.apply_gradients(pairs)
