"""Optimizers: gradients of a loss, and the updates that minimize it, as nodes of the model."""

from amp_rewrite.base.hints import give_hints
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.training.optimizers.clipping import (
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    global_norm,
)
from amp_rewrite.training.optimizers.gradient_accumulation import Accumulation
from amp_rewrite.training.optimizers.learning_rate import (
    CosineSchedule,
    ExponentialDecay,
    LinearWarmUp,
    PiecewiseConstantDecay,
    PolynomialDecay,
    Schedule,
)
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.parameter_groups import ParameterGroup, ParameterGroups
from amp_rewrite.training.optimizers.registry import (
    NAMES,
    AdamWOptimizer,
    LAMBOptimizer,
    get,
)
from amp_rewrite.training.optimizers.rules.adagrad import (
    Adadelta,
    AdadeltaOptimizer,
    AdadeltaRule,
    Adagrad,
    AdagradOptimizer,
    AdagradRule,
)
from amp_rewrite.training.optimizers.rules.adam import (
    LAMB,
    Adam,
    AdamOptimizer,
    AdamRule,
    AdamW,
    AdamWRule,
    Lamb,
    LAMBRule,
)
from amp_rewrite.training.optimizers.rules.gradient_descent import (
    SGD,
    GradientDescent,
    GradientDescentOptimizer,
    GradientDescentRule,
    Momentum,
    MomentumOptimizer,
    MomentumRule,
)
from amp_rewrite.training.optimizers.rules.rmsprop import (
    RMSProp,
    RMSprop,
    RMSPropOptimizer,
    RMSPropRule,
)
from amp_rewrite.training.optimizers.train_op import TrainOp, group
from amp_rewrite.training.optimizers.update_rule import UpdateInput, UpdateRule
from amp_rewrite.training.optimizers.weight_average import WeightAverage
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper
from amp_rewrite.training.wrappers import register_wrappers

__all__ = [
    "LAMB",
    "NAMES",
    "SGD",
    "Accumulation",
    "Adadelta",
    "AdadeltaOptimizer",
    "AdadeltaRule",
    "Adagrad",
    "AdagradOptimizer",
    "AdagradRule",
    "Adam",
    "AdamOptimizer",
    "AdamRule",
    "AdamW",
    "AdamWOptimizer",
    "AdamWRule",
    "CosineSchedule",
    "ExponentialDecay",
    "GradientDescent",
    "GradientDescentOptimizer",
    "GradientDescentRule",
    "IndexedSlices",
    "LAMBOptimizer",
    "LAMBRule",
    "Lamb",
    "LinearWarmUp",
    "Momentum",
    "MomentumOptimizer",
    "MomentumRule",
    "Optimizer",
    "OptimizerTypeError",
    "OptimizerValueError",
    "OptimizerWrapper",
    "ParameterGroup",
    "ParameterGroups",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "RMSProp",
    "RMSPropOptimizer",
    "RMSPropRule",
    "RMSprop",
    "Schedule",
    "TrainOp",
    "UpdateInput",
    "UpdateRule",
    "WeightAverage",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "get",
    "global_norm",
    "group",
]

register_wrappers()
give_hints(__name__)
