"""The product that unscales a gradient also multiplies it by what the update begins with."""

from collections.abc import Callable

import numpy as np
import onnx.inliner
import onnx.shape_inference
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.graph.save import to_proto
from amp_rewrite.loss_scaling import LossScaleOptimizer
from amp_rewrite.optimizers import Adam, Optimizer

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


class Descent(Adam):
    """Keeps Adam's slots as they are and takes a plain step."""

    def _update(self, number, shared, slots):
        b = number.b
        return b.sub(number.value, b.mul(number.gradient, 0.5)), slots


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


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_a_rule_of_the_users_own_gets_the_gradient(
    scale: object, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    op = LossScaleOptimizer(Descent(), scale).minimize(amp.value(four_variables(), "loss"))
    with amp.TrainingSession(op) as session:
        before = session.state_dict()["matrix"]
        session.run(feeds)
        moved = before - session.state_dict()["matrix"]
    np.testing.assert_allclose(moved, 0.5 * feeds["g2"], rtol=1e-5)


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_an_optimizer_that_changes_gradients_itself_gets_them_unscaled(
    scale: object, four_variables: Make, feeds_of: FeedsOf
) -> None:
    feeds = feeds_of(np.random.default_rng(0))
    slots = []
    for optimizer in (Doubled(), LossScaleOptimizer(Doubled(), scale)):
        with amp.TrainingSession(optimizer.minimize(amp.value(four_variables(), "loss"))) as s:
            s.run(feeds)
            slots.append(s.state_dict()["matrix/Adam"])
    np.testing.assert_array_equal(slots[0], slots[1])
    np.testing.assert_allclose(slots[0], 0.1 * 2 * feeds["g2"], rtol=1e-5)


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
