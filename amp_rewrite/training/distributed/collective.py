"""What an engine of collectives offers, such as MPI and torch.distributed; how shards use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class Request:
    """A collective that an engine has begun.

    Attributes:
        finish: Waits for what the engine calls it.
        request: What the engine calls it.
        buffer: What it reads and writes, which lives until it is done.
    """

    finish: Callable[[Any], None]
    request: Any
    buffer: Any

    def wait(self) -> None:
        """Return when it is done; see `Pending`."""
        self.finish(self.request)


class Collective(Protocol):
    """A group of shards, all of which make the same calls in the same order.

    Attributes:
        rank: The number of this shard in the group, from 0.
        size: How many shards there are.
        local_size: How many of them share this machine.
    """

    rank: int
    size: int
    local_size: int

    def start_sum(self, buffer: Array) -> Pending:
        """Begin to replace a buffer by its sum over the shards, the same bits on each.

        Args:
            buffer: A contiguous array of float32 or float64; not to be touched before `wait`.
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
    """

    bucket_bytes: int = 25 * MIB

    def __post_init__(self) -> None:
        """Check the number.

        Raises:
            OptionError: It is impossible.
        """
        arguments.integer("bucket_bytes", self.bucket_bytes, low=1)
