"""Training on several shards: CrossShardOptimizer, and the engines that sum over shards."""

from amp_rewrite.distributed.collective import Collective
from amp_rewrite.distributed.cross_shard_optimizer import MEAN, SUM, CrossShardOptimizer
from amp_rewrite.distributed.data import ShardedData
from amp_rewrite.distributed.errors import ShardError
from amp_rewrite.distributed.shards import ShardOptions, Shards, mpi, shard_context, started, torch

__all__ = [
    "MEAN",
    "SUM",
    "Collective",
    "CrossShardOptimizer",
    "ShardError",
    "ShardOptions",
    "ShardedData",
    "Shards",
    "mpi",
    "shard_context",
    "started",
    "torch",
]
