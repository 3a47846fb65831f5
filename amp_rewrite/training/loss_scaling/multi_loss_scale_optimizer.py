"""An optimizer of several losses, each of which has a loss scale of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import onnx_ir as ir

from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.walk import accumulate
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.loss_scaling.get import get, restored, serialize
from amp_rewrite.training.loss_scaling.loss_scale import LossScale
from amp_rewrite.training.loss_scaling.loss_scale_optimizer import LossScaleOptimizer
from amp_rewrite.training.loss_scaling.scaling_optimizer import (
    ScalingOptimizer,
    builder_in,
    check_scale,
)
from amp_rewrite.training.optimizers.compute_gradients import Loss, check_loss, check_losses
from amp_rewrite.training.optimizers.gradient import (
    Gradient,
    Raw,
    remember_parts,
    unwrap,
    values_of,
    wrap,
)
from amp_rewrite.training.optimizers.gradient_options import GradientOptions, options_by_position
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable, VarList


class MultiLossScaleOptimizer(ScalingOptimizer):
    """Minimizes the sum of several losses, each with a loss scale of its own.

    Losses of very different magnitude leave no common scale with which the gradients of one do not
    underflow and those of another do not overflow. Each loss has a backward pass of its own, whose
    gradients are divided by its scale before they are added up:

        optimizer = MultiLossScaleOptimizer(Adam(1e-3), ["dynamic", "dynamic"])
        train_op = optimizer.minimize([main, 0.1 * auxiliary])

    If a gradient of any loss is not finite, the whole step is skipped. The scale of a loss moves by
    its own gradients alone: that of the others goes on as after a finite step (Apex does so with
    `num_losses`, https://nvidia.github.io/apex/amp.html). Should all be finite but their sum, all
    scales shrink. The fetch "loss" is the sum; the others are those of `TrainOp.loss_scales`.
    """

    _scales_argument = "loss_scales"
    _tells_losses_apart = True

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scales: Sequence[Any],
        *,
        conditional: str = "if",
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: See `LossScaleOptimizer`.
            loss_scales: One for each loss, in their order: LossScales, each of which is another
                object, or what `loss_scaling.get` takes.
            conditional: See `LossScaleOptimizer`.

        Raises:
            LossScaleTypeError: `loss_scales` is not a list.
            LossScaleValueError: The optimizer cannot be wrapped, or a loss scale is missing or
                stands twice.
            OptionError: `conditional` is neither.
        """
        super().__init__(optimizer, conditional)
        self._loss_scales = _check_scales(loss_scales)

    @property
    def loss_scales(self) -> tuple[LossScale, ...]:
        """The loss scales, in the order of the losses."""
        return self._loss_scales

    @property
    def _scales(self) -> tuple[LossScale, ...]:
        """The loss scales."""
        return self.loss_scales

    @property
    def current_loss_scales(self) -> tuple[float, ...]:
        """The present loss scales: the running session's if there is one."""
        return tuple(scale.current for scale in self.loss_scales)

    @options_by_position
    def compute_gradients(
        self,
        loss: Loss,
        var_list: VarList = None,
        grad_loss: GraphValue | None = None,
        **options: Unpack[GradientOptions],
    ) -> list[tuple[Any, State]]:
        """Return the unscaled gradients of the sum of the losses.

        Args:
            loss: As many losses as there are loss scales: a list.
            var_list: See `Optimizer.compute_gradients`.
            grad_loss: None: losses are weighted by a multiplication.
            **options: See there.

        Raises:
            LossScaleValueError: There are more or fewer losses than loss scales, or a grad_loss.
        """
        losses = self._check_losses(loss, grad_loss)
        pairs_of_losses = [
            LossScaleOptimizer(self.inner_optimizer, scale).compute_gradients(
                each, var_list=var_list, **options
            )
            for each, scale in zip(losses, self.loss_scales, strict=True)
        ]
        graph = losses[0].graph
        graph.loss = check_loss(losses)
        b = builder_in(graph)
        variables = {v.name: v for pairs in pairs_of_losses for _, v in pairs}
        by_name = [{v.name: gradient for gradient, v in pairs} for pairs in pairs_of_losses]
        return [
            (wrap(graph, _sum(b, [gradients.get(name) for gradients in by_name])), variable)
            for name, variable in variables.items()
        ]

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return unscaled gradients of the sum of the losses."""
        return Optimizer.get_gradients(self, loss, params)

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` makes an optimizer like this one from."""
        return {
            **super().get_config(),
            "loss_scales": [serialize(scale) for scale in self.loss_scales],
        }

    @classmethod
    def _scales_from(cls, config: Any, custom_objects: Mapping[str, type[Any]]) -> Any:
        """Return the loss scales of a configuration."""
        return [restored(scale, custom_objects) for scale in _listed(config)]

    def _check_losses(self, loss: object, grad_loss: object) -> list[GraphValue]:
        if not isinstance(loss, list | tuple) or len(loss) != len(self.loss_scales):  # pyright: ignore[reportUnknownArgumentType] users pass anything
            count = len(loss) if isinstance(loss, list | tuple) else 1  # pyright: ignore[reportUnknownArgumentType]
            raise LossScaleValueError(
                "the losses do not fit the loss scales",
                where=self.get_name(),
                found=f"{count} of {len(self.loss_scales)}",
                expected=f"a list of {len(self.loss_scales)} losses, one for each loss scale",
                remedy="pass them to minimize, and put this optimizer around any other",
            )
        if grad_loss is not None:
            raise LossScaleValueError(
                "several losses take no grad_loss",
                where=self.get_name(),
                remedy="multiply the losses instead",
            )
        return check_losses(loss)


def _listed(loss_scales: object) -> Sequence[Any]:
    if isinstance(loss_scales, list | tuple):
        return loss_scales  # pyright: ignore[reportUnknownVariableType]
    raise LossScaleTypeError(
        "the loss scales of several losses must be a list",
        found=repr(loss_scales),
        remedy="use LossScaleOptimizer for one loss",
    )


def _check_scales(loss_scales: object) -> tuple[LossScale, ...]:
    """Return loss scales, each of which has states of its own."""
    scales = tuple(check_scale(get(given)) for given in _listed(loss_scales))
    if not scales:
        raise LossScaleValueError("no loss scales", expected="one for each loss")
    if len({id(scale) for scale in scales}) < len(scales):
        raise LossScaleValueError(
            "one LossScale stands for two losses",
            found=repr(list(loss_scales)),  # pyright: ignore[reportArgumentType] it is a list
            expected="another object for each, such as [DynamicLossScale(), DynamicLossScale()]",
        )
    return scales


def _sum(b: Builder, gradients: Sequence[Gradient]) -> Raw | None:
    """Return the sum of what several losses add to a gradient; it knows what each of them adds."""
    raw = [None if gradient is None else unwrap(gradient) for gradient in gradients]
    parts = [part for part in raw if part is not None]
    if not parts:
        return None
    like = next((part for part in parts if isinstance(part, ir.Value)), values_of(parts[0]))
    total = parts[0] if len(parts) == 1 else accumulate(b, parts, like, sparse=True)
    remember_parts(values_of(total), [None if part is None else values_of(part) for part in raw])
    return total
