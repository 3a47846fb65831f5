"""An optimizer whose loss is scaled, and whose updates are skipped if gradients overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.graph.keys import SCALED_KEY
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.loss_scaling.finite import finite_and_norm
from amp_rewrite.training.loss_scaling.get import get, restored, serialize
from amp_rewrite.training.loss_scaling.gradients import (
    Pairs,
    multiplied_for,
    scaled_seed,
    unscaled,
    without_repeated_indices,
)
from amp_rewrite.training.loss_scaling.loss_scale import LossScale, LossScaleState
from amp_rewrite.training.loss_scaling.scaling_optimizer import (
    ScalingOptimizer,
    builder_in,
    check_scale,
    check_wrapped,
)
from amp_rewrite.training.loss_scaling.skipped_step import (
    ScaledLoss,
    always_applied,
    present_state,
    skipped_unless_finite,
)
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import var_list as var_lists
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.compute_gradients import (
    Loss,
    check_float,
    check_grad_loss,
    check_loss,
)
from amp_rewrite.training.optimizers.gradient import Gradient, graph_of, unwrap, wrap
from amp_rewrite.training.optimizers.gradient_options import GradientOptions, options_by_position
from amp_rewrite.training.optimizers.optimizer import Optimizer, overrides
from amp_rewrite.training.optimizers.slots import Variable, VarList
from amp_rewrite.training.optimizers.train_op import TrainOp


class LossScaleOptimizer(ScalingOptimizer):
    """Scales the loss, unscales gradients, and applies an optimizer if they are finite.

    The loss scale multiplies the seed of the backward pass, in float32, so that no gradient
    underflows in low precision; gradients are multiplied by its reciprocal in float32. If one of
    them is not finite, the step changes no variable, slot, statistic or counter of steps, but the
    loss scale only, and where the random numbers of Dropout go on: a batch that is tried again is
    not thinned out alike (P. Micikevicius et al., "Mixed Precision Training", 2018,
    https://arxiv.org/abs/1710.03740).

    With a FixedLossScale nothing is checked: every step is applied, and the fetch `grads_finite` is
    always true.

    Every other attribute is that of the wrapped optimizer.
    """

    _scales_argument = "loss_scale"

    def __init__(
        self, optimizer: Optimizer, loss_scale: Any = "dynamic", *, conditional: str = "if"
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: Any optimizer that does not clip gradients itself.
            loss_scale: A LossScale, or what `loss_scaling.get` takes. Optimizers that are given one
                LossScale share its present value.
            conditional: "if" puts the update into the then-branch of one If; "select" adds a Where
                per state tensor and holds no control flow, which CUDA graphs need.

        Raises:
            LossScaleValueError: The optimizer cannot be wrapped, or there is no loss scale.
            OptionError: `conditional` is neither.
        """
        super().__init__(optimizer, conditional)
        self._loss_scale = check_scale(get(loss_scale))

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale."""
        return self._loss_scale

    @property
    def current_loss_scale(self) -> float:
        """The present loss scale: the running session's if there is one."""
        return self.loss_scale.current

    def get_scaled_loss(self, loss: Loss) -> Any:
        """Return the loss times the loss scale, which is cast to the loss's type.

        Args:
            loss: A floating-point value, or a callable that returns one; then a callable is
                returned.

        Raises:
            OptimizerTypeError: It is not a value.
            OptimizerValueError: It is not floating-point.
        """
        if callable(loss):
            given: Callable[[], GraphValue] = loss
            return lambda: self.get_scaled_loss(given())
        value = check_loss(loss)
        check_float("loss", value.name, value.dtype)
        b, scale = builder_in(value.graph), self._values(value.graph).current_loss_scale
        scaled = b.mul(value.value, b.cast_like(scale, value.value))
        scaled.meta[SCALED_KEY] = value.value
        return GraphValue(value.graph, scaled)

    def get_unscaled_gradients(self, grads: Iterable[Gradient]) -> list[Any]:
        """Return gradients times the reciprocal of the loss scale, in float32; None stays None.

        Indices of sparse gradients are kept.

        Raises:
            OptimizerTypeError: They are not a list, or one is neither a value nor IndexedSlices nor
                None.
            OptimizerValueError: They are of different models.
            LossScaleValueError: They do not tell which model they belong to.
        """
        given = check.listed(grads, "gradients")
        raw = [None if g is None else unwrap(g) for g in given]
        if all(g is None for g in raw):
            return given
        graph = graph_of(given)
        if graph is None:
            raise LossScaleValueError(
                "the gradients do not tell which model they belong to",
                expected="gradients that compute_gradients returned",
            )
        b = builder_in(graph)
        reciprocal = b.reciprocal(self._values(graph).current_loss_scale)
        return [None if g is None else wrap(graph, unscaled(b, g, reciprocal)) for g in raw]

    @options_by_position
    def compute_gradients(
        self,
        loss: Loss,
        var_list: VarList = None,
        grad_loss: GraphValue | None = None,
        **options: Unpack[GradientOptions],
    ) -> list[tuple[Any, State]]:
        """Do what `Optimizer.compute_gradients` does, with a scaled seed; unscale the gradients."""
        value = check_loss(loss)
        check_float("loss", value.name, value.dtype)
        given = check_grad_loss(value, grad_loss)
        b, scale = builder_in(value.graph), self._values(value.graph).current_loss_scale
        var_list = var_lists.checked(value, var_list)
        seed = scaled_seed(b, value, scale, given)
        pairs = super().compute_gradients(value, var_list=var_list, grad_loss=seed, **options)
        gradients = self.get_unscaled_gradients([gradient for gradient, _ in pairs])
        return [(g, variable) for g, (_, variable) in zip(gradients, pairs, strict=True)]

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Add the finite check, the conditional update, and the update of the loss scale."""
        graph, pairs = check_pairs(grads_and_vars)
        b = builder_in(graph)
        losses = [ScaledLoss(self.loss_scale, self._values(graph))]
        inner = check_wrapped(self.inner_optimizer)
        pairs, factor = multiplied_for(inner, b, graph, pairs)
        if not self.loss_scale.checks:
            return always_applied(b, self._applied(pairs, global_step, name, factor), losses)
        pairs = without_repeated_indices(b, graph, pairs, rows_only=inner.touches_rows_only)
        finite, norm = finite_and_norm(b, [unwrap(g) for g, _ in pairs if g is not None], factor)
        finite.name = graph.free_name("grads_finite")
        op = self._applied(pairs, global_step, name, factor)
        return skipped_unless_finite(b, op, losses, finite, norm, self.conditional)

    def _applied(
        self, pairs: Pairs, global_step: Variable | None, name: str | None, factor: float
    ) -> TrainOp:
        """Let the inner optimizer apply what `multiplied_for` returned."""
        if factor == 1:
            return super().apply_reduced(pairs, global_step, name)
        return self.inner_optimizer.apply_multiplied(pairs, global_step, name, factor)

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return unscaled gradients; a `get_gradients` of a user's own gets the scaled loss."""
        inner = self.inner_optimizer
        if not overrides(inner, "get_gradients"):
            return Optimizer.get_gradients(self, loss, params)
        value = check_loss(loss)
        scaled = inner.get_gradients(self.get_scaled_loss(value), params)
        value.graph.loss = value  # what a session shows as the loss is not scaled
        return self.get_unscaled_gradients(scaled)

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` makes an optimizer like this one from."""
        return {
            **super().get_config(),
            "loss_scale": serialize(self.loss_scale),
        }

    @classmethod
    def _scales_from(cls, given: Any, custom_objects: Mapping[str, type[Any]]) -> LossScale | None:
        """Return the loss scale of a configuration."""
        return restored(given, custom_objects)

    def _values(self, graph: TrainingGraph) -> LossScaleState:
        return present_state(builder_in(graph), graph, self.loss_scale)


MixedPrecisionLossScaleOptimizer = LossScaleOptimizer
"""The name of version 1."""
