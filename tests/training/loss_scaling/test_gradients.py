"""The product that unscales a gradient also multiplies it by what the update begins with."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.loss_scaling import LossScaleOptimizer, LossScaleValueError
from amp_rewrite.optimizers import Adam, Optimizer, OptimizerWrapper

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]


class Doubled(Adam):
    """Doubles gradients before they are applied."""

    def apply_reduced(self, grads_and_vars, global_step=None, name=None):
        pairs = [(g if g is None else self.double(g), v) for g, v in grads_and_vars]
        return super().apply_reduced(pairs, global_step, name)

    @staticmethod
    def double(gradient):
        if isinstance(gradient, amp.IndexedSlices):
            return gradient._replace(values=gradient.values * 2.0)
        return gradient * 2.0


class Plain(OptimizerWrapper):
    """A wrapper that changes nothing."""


def patched() -> Optimizer:
    """Return an instance whose `apply_reduced` is not that of its class."""
    optimizer, other = Adam(), Doubled()
    optimizer.apply_reduced = other.apply_reduced
    return optimizer


def first_moments(optimizer: Optimizer, model: ir.Model, feeds: Feeds) -> np.ndarray:
    """Return the first moment of the variable "matrix" after one step."""
    with amp.TrainingSession(optimizer.minimize(amp.value(model, "loss"))) as session:
        session.run(feeds)
        state = session.state_dict()
    return state["matrix/Adam"]


@pytest.mark.share(2)
@pytest.mark.parametrize("scale", [8.0, "dynamic"])
@pytest.mark.parametrize("make", [Doubled, patched, lambda: Plain(Doubled())])
def test_an_optimizer_that_changes_gradients_itself_gets_them_unscaled(
    make: Callable[[], Optimizer], scale: object, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    plain = first_moments(make(), four_variables(), feeds)
    scaled = first_moments(LossScaleOptimizer(make(), scale), four_variables(), feeds)
    np.testing.assert_array_equal(plain, scaled)
    np.testing.assert_allclose(plain, 0.1 * 2 * feeds["g2"], rtol=1e-5)


@pytest.mark.parametrize("limit", ["clipnorm", "clipvalue", "global_clipnorm"])
@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_clipping_cannot_be_turned_on_after_wrapping_any_more_than_before(
    limit: str, scale: object
) -> None:
    optimizer = LossScaleOptimizer(Adam(), scale)
    with pytest.raises(LossScaleValueError, match=f"with a {limit}; found {limit}=0.1"):
        setattr(optimizer, limit, 0.1)
    assert getattr(optimizer, limit) is None


@pytest.mark.parametrize("mode", ["if", "select"])
def test_the_norm_is_that_of_the_gradients(
    mode: str, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    norms = []
    for make in (
        optimizers.GradientDescent,  # multiplies by nothing
        lambda: Adam(beta2=0.5),
        lambda: Adam(beta2=0.0),
        lambda: LossScaleOptimizer(Adam(), 8.0),
        lambda: LossScaleOptimizer(Adam(), conditional=mode),
    ):
        with amp.TrainingSession(make().minimize(amp.value(four_variables(), "loss"))) as session:
            norms.append(session.run(feeds, "gradient_norm")["gradient_norm"])
    np.testing.assert_allclose(norms, norms[0], rtol=1e-6)


def test_a_norm_with_one_gradient_clipped_is_that_before_clipping(
    four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    found = []
    for optimizer in (Adam(), LossScaleOptimizer(Adam(), 8.0), LossScaleOptimizer(Adam())):
        pairs = optimizer.compute_gradients(amp.value(four_variables(), "loss"))
        limited = [
            (optimizers.clip_by_value(g, -0.1, 0.1) if v.name == "vector" else g, v)
            for g, v in pairs
        ]
        with amp.TrainingSession(optimizer.apply_gradients(limited)) as session:
            norm = session.run(feeds, "gradient_norm")["gradient_norm"]
            found.append((norm, session.state_dict()["vector/Adam"]))
    norms, moments = zip(*found, strict=True)
    np.testing.assert_allclose(norms, norms[0], rtol=1e-6)
    assert abs(moments[0]).max() <= 0.1 * 0.1 * (1 + 1e-6)
    for other in moments[1:]:
        np.testing.assert_array_equal(other, moments[0])
