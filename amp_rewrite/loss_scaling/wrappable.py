"""What LossScaleOptimizer refuses to wrap."""

from __future__ import annotations

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.loss_scaling.loss_scale import LossScale
from amp_rewrite.optimizers.clipping import LIMITS
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.wrapper import OptimizerWrapper


def check_optimizer(optimizer: object) -> Optimizer:
    """Return an optimizer that can be wrapped.

    Raises:
        LossScaleValueError: It is not an optimizer; it or one inside it scales the loss already,
            clips gradients, which would be done before the finite check sees them, or reduces
            gradients in a way that a loss scale would change.
    """
    if not isinstance(optimizer, Optimizer):
        raise LossScaleValueError(
            '"optimizer" must be an instance of amp_rewrite.optimizers.Optimizer',
            found="None" if optimizer is None else type(optimizer).__name__,
            remedy="pass an optimizer such as amp_rewrite.optimizers.Adam(1e-3)",
        )
    if optimizer.scales_loss:
        raise LossScaleValueError(
            '"optimizer" must not already be an instance of a LossScaleOptimizer',
            where=optimizer.get_name(),
            remedy="wrap an optimizer once: enable_mixed_precision_graph_rewrite does it too",
        )
    for key in LIMITS:
        limit = getattr(optimizer, key)
        if limit is not None:
            raise LossScaleValueError(
                f"LossScaleOptimizer does not support wrapping optimizers with a {key}",
                where=optimizer.get_name(),
                found=f"{key}={limit}",
                remedy="clip the unscaled gradients between compute_gradients and apply_gradients, "
                "or with train-step --clip-norm",
            )
    return check_collectives(optimizer)


def check_collectives(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer that a loss scale can be put around.

    Raises:
        LossScaleValueError: It or one inside it is a collective that a loss scale would change.
    """
    inside: Optimizer | None = optimizer
    while inside is not None:
        if not inside.supports_loss_scaling:
            raise LossScaleValueError(
                "Loss scaling is not supported with this collective",
                where=inside.get_name(),
                found=f"{type(inside).__name__}, whose supports_loss_scaling is False",
                remedy="reduce gradients by a sum or a mean",
            )
        inside = inside.inner_optimizer if isinstance(inside, OptimizerWrapper) else None
    return optimizer


def check_scale(loss_scale: LossScale | None) -> LossScale:
    """Return a loss scale that is one.

    Raises:
        LossScaleValueError: It is None.
    """
    if loss_scale is None:
        raise LossScaleValueError(
            "loss_scale cannot be None",
            where="LossScaleOptimizer",
            expected="a number, 'dynamic' or a LossScale",
            remedy="use the optimizer itself to train without a loss scale",
        )
    return loss_scale
