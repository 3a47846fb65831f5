"""What LossScaleOptimizer refuses to wrap."""

from __future__ import annotations

from typing import Any

from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.loss_scaling.loss_scale import LossScale
from amp_rewrite.optimizers.optimizer import Optimizer

_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


def check_optimizer(optimizer: object, wrapper: type[Any]) -> Optimizer:
    """Return an optimizer that can be wrapped.

    Args:
        optimizer: What was given.
        wrapper: The class of optimizers that scale the loss.

    Raises:
        LossScaleValueError: It is no optimizer; it or one inside it scales the loss already, clips
            gradients, which would be done before the finite check sees them, or reduces gradients
            in a way that a loss scale would change.
    """
    if not isinstance(optimizer, Optimizer):
        raise LossScaleValueError(
            '"optimizer" must be an instance of amp_rewrite.optimizers.Optimizer',
            found="None" if optimizer is None else type(optimizer).__name__,
            remedy="pass an optimizer such as amp_rewrite.optimizers.Adam(1e-3)",
        )
    inside: object = optimizer
    while isinstance(inside, Optimizer):
        if isinstance(inside, wrapper):
            raise LossScaleValueError(
                '"optimizer" must not already be an instance of a LossScaleOptimizer',
                where=inside.get_name(),
                remedy="wrap an optimizer once: enable_mixed_precision_graph_rewrite does it too",
            )
        _check_one(inside)
        inside = vars(inside).get("_inner")
    return optimizer


def _check_one(optimizer: Optimizer) -> None:
    for key in _CLIPPING:
        limit = getattr(optimizer, key)
        if limit is not None:
            raise LossScaleValueError(
                f"LossScaleOptimizer does not support wrapping optimizers with a {key}",
                where=optimizer.get_name(),
                found=f"{key}={limit}",
                remedy="clip the unscaled gradients between compute_gradients and apply_gradients, "
                "or with train-step --clip-norm",
            )
    if not optimizer.supports_loss_scaling:
        raise LossScaleValueError(
            "Loss scaling is not supported with this collective",
            where=optimizer.get_name(),
            found=f"{type(optimizer).__name__}, whose supports_loss_scaling is False",
            remedy="reduce gradients by a sum or a mean",
        )


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
