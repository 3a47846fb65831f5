"""What an engine of collectives offers, such as MPI and torch.distributed; how shards use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from amp_rewrite.base import arguments

Array = np.ndarray[Any, Any]

_LENIENT = "surrogatepass"
"""Names of nodes and files may hold what UTF-8 alone does not encode."""


class Pending(Protocol):
    """A collective that has begun."""

    def wait(self) -> None:
        """Return when it is done.

        Raises:
            ShardError: Another shard has ended, or does not answer in time.
        """
        ...


class Collective(Protocol):
    """A group of shards, all of which make the same calls in the same order.

    Attributes:
        rank: The number of this shard in the group, from 0.
        size: How many shards there are.
        local_size: How many of them share this machine.
        on_device: Whether `start_sum` takes torch tensors on a GPU too, without a host copy.
    """

    rank: int
    size: int
    local_size: int
    on_device: bool

    def start_sum(self, buffer: Any) -> Pending:
        """Begin to replace a buffer by its sum over the shards, the same bits on each.

        Args:
            buffer: A contiguous array of a float type; not to be touched before `wait`.
        """
        ...

    def gather(self, array: Array) -> list[Array]:
        """Return the arrays of all shards; they may differ in length along axis 0 only."""
        ...

    def broadcast(self, array: Array) -> None:
        """Overwrite a contiguous array by that of shard 0."""
        ...

    def split(self, groups: Sequence[Sequence[int]]) -> Collective:
        """Return the group of this shard; all shards must call it."""
        ...

    def abort(self, status: int) -> None:
        """End all shards, as far as the engine can; it may return."""
        ...

    def close(self) -> None:
        """Release what the engine holds; all shards must call it."""
        ...


def as_bytes(array: Array) -> Array:
    """Return the memory of a contiguous array as uint8."""
    return array.reshape(-1).view(np.uint8)


def gather_text(group: Collective, text: str) -> list[str]:
    """Return the texts of all shards."""
    parts = group.gather(np.frombuffer(text.encode(errors=_LENIENT), np.uint8))
    return [part.tobytes().decode(errors=_LENIENT) for part in parts]


def broadcast_text(group: Collective, text: str) -> str:
    """Return the text of shard 0."""
    content = np.frombuffer(text.encode(errors=_LENIENT), np.uint8).copy()
    length = np.array([content.size], np.int64)
    group.broadcast(length)
    if group.rank:
        content = np.empty(int(length[0]), np.uint8)
    group.broadcast(content)
    return content.tobytes().decode(errors=_LENIENT)


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
