"""Optimizers: gradients of a loss, and the updates that minimize it, as nodes of the model."""

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.indexed_slices import IndexedSlices
from amp_rewrite.optimizers.clipping import (
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    clip_with_norm,
    global_norm,
)
from amp_rewrite.optimizers.group import group
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.registry import (
    NAMES,
    SGD,
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    GradientDescentOptimizer,
    Lamb,
    LAMBOptimizer,
    MomentumOptimizer,
    RMSprop,
    RMSPropOptimizer,
    get,
    register,
)
from amp_rewrite.optimizers.rules.adadelta import Adadelta
from amp_rewrite.optimizers.rules.adagrad import Adagrad
from amp_rewrite.optimizers.rules.adam import Adam
from amp_rewrite.optimizers.rules.adamw import AdamW
from amp_rewrite.optimizers.rules.gradient_descent import GradientDescent
from amp_rewrite.optimizers.rules.lamb import LAMB
from amp_rewrite.optimizers.rules.momentum import Momentum
from amp_rewrite.optimizers.rules.rmsprop import RMSProp
from amp_rewrite.optimizers.schedules import (
    ConstantSchedule,
    CosineSchedule,
    LinearWarmUp,
    Schedule,
    StepSchedule,
)
from amp_rewrite.optimizers.train_op import TrainOp
from amp_rewrite.optimizers.update_rule import UpdateInput, UpdateRule
from amp_rewrite.optimizers.wrapper import OptimizerWrapper

__all__ = [
    "LAMB",
    "NAMES",
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "AdamW",
    "AdamWOptimizer",
    "ConstantSchedule",
    "CosineSchedule",
    "GradientDescent",
    "GradientDescentOptimizer",
    "IndexedSlices",
    "LAMBOptimizer",
    "Lamb",
    "LinearWarmUp",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "OptimizerTypeError",
    "OptimizerValueError",
    "OptimizerWrapper",
    "RMSProp",
    "RMSPropOptimizer",
    "RMSprop",
    "Schedule",
    "StepSchedule",
    "TrainOp",
    "UpdateInput",
    "UpdateRule",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_with_norm",
    "get",
    "global_norm",
    "group",
    "register",
]
