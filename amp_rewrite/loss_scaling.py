"""Loss scales, the finite check, the conditional update and LossScaleOptimizer."""

from amp_rewrite.base.hints import give_hints
from amp_rewrite.errors import LossScaleError, LossScaleTypeError, LossScaleValueError
from amp_rewrite.training.loss_scaling.loss_scale import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleState,
    UncheckedLossScale,
    get,
)
from amp_rewrite.training.loss_scaling.loss_scale_optimizer import (
    LossScaleOptimizer,
    MixedPrecisionLossScaleOptimizer,
)
from amp_rewrite.training.wrappers import register_wrappers

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "LossScaleError",
    "LossScaleOptimizer",
    "LossScaleState",
    "LossScaleTypeError",
    "LossScaleValueError",
    "MixedPrecisionLossScaleOptimizer",
    "UncheckedLossScale",
    "get",
]

register_wrappers()
give_hints(__name__)
