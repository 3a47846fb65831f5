"""Training on several shards: CrossShardOptimizer, and the engines that sum over shards."""

from amp_rewrite.base.hints import give_hints
from amp_rewrite.errors import ShardError
from amp_rewrite.training.distributed.collective import Collective
from amp_rewrite.training.distributed.cross_shard_optimizer import MEAN, SUM, CrossShardOptimizer
from amp_rewrite.training.distributed.shards import Shards, mpi, shard_context
from amp_rewrite.training.wrappers import register_wrappers

__all__ = [
    "MEAN",
    "SUM",
    "Collective",
    "CrossShardOptimizer",
    "ShardError",
    "Shards",
    "mpi",
    "shard_context",
]

register_wrappers()
give_hints(__name__)
