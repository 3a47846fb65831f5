"""The product that unscales a gradient also multiplies it by what the update begins with."""

from collections.abc import Callable

import numpy as np
import onnx.inliner
import onnx.shape_inference
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.loss_scaling import LossScaleOptimizer, LossScaleValueError
from amp_rewrite.optimizers import Adam, Optimizer, OptimizerWrapper
from amp_rewrite.training.optimizers.rules.adam import AdamRule

Feeds = dict[str, np.ndarray]
Make = Callable[[], ir.Model]
FeedsOf = Callable[[np.random.Generator], Feeds]


def passes(optimizer: Optimizer, model: ir.Model) -> int:
    """Return how many nodes of a step compute a value in the shape of the variable "matrix"."""
    step = to_proto(amp.build_step(optimizer.minimize(amp.value(model, "loss"))))
    flat = onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(step))
    values = [*flat.graph.value_info, *flat.graph.output]
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    return sum(shapes.get(name) == [4, 3] for node in flat.graph.node for name in node.output)


@pytest.mark.parametrize("kind", [optimizers.Adam, optimizers.AdamW, optimizers.LAMB])
def test_unscaling_costs_no_pass_over_a_gradient(
    kind: Callable[..., Optimizer], four_variables: Make
) -> None:
    plain = passes(kind(0.01), four_variables())
    assert plain >= 12
    assert passes(LossScaleOptimizer(kind(0.01), 8.0), four_variables()) == plain


def test_other_rules_have_one_pass_more(four_variables: Make) -> None:
    plain = passes(optimizers.Momentum(0.1, 0.9), four_variables())
    scaled = passes(LossScaleOptimizer(optimizers.Momentum(0.1, 0.9), 8.0), four_variables())
    assert scaled == plain + 1


class Descent(AdamRule):
    """Keeps Adam's slots as they are and takes a plain step."""

    def update(self, given, shared, slots):
        b = given.b
        return b.sub(given.value, b.mul(given.gradient, 0.5)), slots


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


class Decayed(AdamRule):
    """Adds a tenth of the variable to its gradient, and leaves the rest to Adam."""

    def update(self, given, shared, slots):
        b = given.b
        gradient = b.add(given.gradient, b.mul(given.value, 0.1))
        return super().update(given.with_gradient(gradient), shared, slots)


def with_rule(kind: type[AdamRule]) -> Optimizer:
    """Return an optimizer with Adam's hyperparameters and a rule that is a child of Adam's."""
    rule = kind(beta1=0.9, beta2=0.999, epsilon=1e-8, lazy=False)
    return Optimizer(name="Adam", learning_rate=0.001, rule=rule)


class Plain(OptimizerWrapper):
    """A wrapper that changes nothing."""


def patched() -> Optimizer:
    """Return an instance whose `apply_reduced` is not that of its class."""
    optimizer, other = Adam(), Doubled()
    optimizer.apply_reduced = other.apply_reduced
    return optimizer


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_a_rule_of_the_users_own_gets_the_gradient(
    scale: object, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    op = LossScaleOptimizer(with_rule(Descent), scale).minimize(amp.value(four_variables(), "loss"))
    with amp.TrainingSession(op) as session:
        before = session.state_dict()["matrix"]
        session.run(feeds)
        moved = before - session.state_dict()["matrix"]
    np.testing.assert_allclose(moved, 0.5 * feeds["g2"], rtol=1e-5)


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


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_a_rule_may_give_another_gradient_to_its_parent(
    scale: object, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    matrix = four_variables().graph.initializers["matrix"].const_value
    assert matrix is not None
    for optimizer in (
        with_rule(Decayed),
        LossScaleOptimizer(with_rule(Decayed), scale),
    ):
        moments = first_moments(optimizer, four_variables(), feeds)
        expected = 0.1 * (feeds["g2"] + 0.1 * matrix.numpy())
        np.testing.assert_allclose(moments, expected, rtol=1e-5, atol=1e-8)


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
