"""The optimizers that wrap others, which lie above the registry."""

from __future__ import annotations

from amp_rewrite.training.distributed.cross_shard_optimizer import CrossShardOptimizer
from amp_rewrite.training.loss_scaling.loss_scale_optimizer import LossScaleOptimizer
from amp_rewrite.training.optimizers.parameter_groups import ParameterGroups
from amp_rewrite.training.optimizers.registry import register
from amp_rewrite.training.optimizers.weight_average import WeightAverage


def register_wrappers() -> None:
    """Let configurations name them; each public module that has optimizers calls this."""
    for kind in (CrossShardOptimizer, LossScaleOptimizer, ParameterGroups, WeightAverage):
        register(kind)
