"""How the shards of a training run work together."""

from __future__ import annotations

from dataclasses import dataclass

from amp_rewrite.base import arguments

MIB = 1 << 20


@dataclass(frozen=True)
class ShardOptions:
    """How shards work together; the same on all of them.

    Attributes:
        bucket_bytes: Gradients travel together in buckets of about this number of bytes. The
            default is that of PyTorch's DistributedDataParallel: S. Li et al., "PyTorch
            Distributed: Experiences on Accelerating Data Parallel Training", 2020,
            https://arxiv.org/abs/2006.15704.
        check_every: Compare the states of all shards after every N steps; 0 does not.
        low_precision_sums: Let gradients that are computed in float16 or bfloat16 travel and be
            summed in that type: half the bytes, but the sum is rounded to the type, and it may
            overflow where the float32 sum does not; a loss scale then skips the step.
    """

    bucket_bytes: int = 25 * MIB
    check_every: int = 0
    low_precision_sums: bool = False

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            OptionError: One is impossible.
        """
        for name, least in (("bucket_bytes", 1), ("check_every", 0)):
            arguments.integer(name, getattr(self, name), low=least)
