"""The collectives of an engine such as MPI, and texts that travel by them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from amp_rewrite.errors import ShardError

Array = np.ndarray[Any, Any]

_LENIENT = "surrogatepass"
"""Names of nodes and files may hold what UTF-8 alone does not encode."""


class Collective(Protocol):
    """A group of shards, all of which make the same calls in the same order.

    A call of another method than `abort` is a ShardError if another shard has ended, or does not
    answer in time.

    Attributes:
        rank: The number of this shard in the group, from 0.
        size: How many shards there are.
        local_size: How many of them share this machine.
    """

    rank: int
    size: int
    local_size: int

    def sum(self, buffer: Array) -> None:
        """Replace a contiguous float32 or float64 array by its sum, the same bits on each shard."""
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


def compare(group: Collective, what: str, text: str) -> None:
    """Check that all shards, which must all call this, give the same text; name a line of it."""
    texts = gather_text(group, text)
    other = next((i for i, found in enumerate(texts) if found != texts[0]), None)
    if other is None:
        return
    lines = zip_longest(*(texts[i].splitlines() for i in (0, other)), fillvalue="nothing")
    expected, found = next(pair for pair in lines if pair[0] != pair[1])
    raise ShardError(
        f"the shards differ in {what}",
        where=f"shard {other}",
        found=found,
        expected=f"{expected}, as on shard 0",
        remedy="start all shards with the same program, files and options",
    )
