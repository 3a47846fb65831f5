"""The optimizers of the package that hold others, some of which lie above the registry."""

from __future__ import annotations

from amp_rewrite.training.distributed.cross_shard_optimizer import CrossShardOptimizer
from amp_rewrite.training.loss_scaling.loss_scale_optimizer import LossScaleOptimizer
from amp_rewrite.training.optimizers.parameter_groups import ParameterGroups
from amp_rewrite.training.optimizers.registry import register
from amp_rewrite.training.optimizers.weight_average import WeightAverage

WRAPPERS = (CrossShardOptimizer, LossScaleOptimizer, ParameterGroups, WeightAverage)


def register_wrappers() -> None:
    """Let configurations name them: whoever has an optimizer has come by one of the public faces.

    A configuration is restored from the inside, by classes that cannot import what wraps them.
    """
    for kind in WRAPPERS:
        register(kind)
