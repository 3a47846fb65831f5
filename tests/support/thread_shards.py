"""Shards that are threads of one process: a collective without MPI, for tests of many steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np

from amp_rewrite.training.distributed.collective import Array
from amp_rewrite.training.distributed.shards import Shards

Result = TypeVar("Result")

SECONDS = 60.0
"""How long a shard waits for the others."""


class Meeting:
    """Where threads exchange arrays, all of them at once."""

    def __init__(self, size: int) -> None:
        """Begin without anybody."""
        self.size = size
        self.barrier = threading.Barrier(size, timeout=SECONDS)
        self._given: list[Array | None] = [None] * size

    def exchange(self, rank: int, array: Array) -> list[Array]:
        """Give a copy of an array; return those of all threads."""
        self._given[rank] = array.copy()
        self.barrier.wait()
        found = [given for given in self._given if given is not None]
        self.barrier.wait()  # nobody gives the next one before all have these
        return found


class ThreadCollective:
    """A thread's part in a meeting; see `amp_rewrite.distributed.collective.Collective`."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        """Take part under a number."""
        self._meeting, self.rank = meeting, rank
        self.size = self.local_size = meeting.size

    def sum(self, buffer: Any) -> None:
        """Add in the order of the shards, so that the bits are the same on each."""
        given = self._meeting.exchange(self.rank, buffer)
        with np.errstate(over="ignore", invalid="ignore"):  # infinities are summed, too
            np.copyto(buffer, sum(given[1:], given[0]))

    def gather(self, array: Array) -> list[Array]:
        """See `Collective`."""
        return self._meeting.exchange(self.rank, np.asarray(array))

    def broadcast(self, array: Array) -> None:
        """See `Collective`."""
        np.copyto(array, self._meeting.exchange(self.rank, array)[0].reshape(array.shape))

    def split(self, groups: Sequence[Sequence[int]]) -> Self:
        """Return the same meeting, the only group that is offered."""
        assert [sorted(group) for group in groups] == [list(range(self.size))]
        return self

    def abort(self, status: int) -> None:
        """Let the others' waiting end with an error."""
        del status
        self._meeting.barrier.abort()

    def close(self) -> None:
        """Release nothing."""


def on_threads(size: int, program: Callable[[Shards], Result]) -> list[Result]:
    """Run a program on every shard; return what each found."""
    meeting = Meeting(size)

    def run(rank: int) -> Result:
        with Shards(ThreadCollective(meeting, rank)) as shards:
            return program(shards)

    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(run, rank) for rank in range(size)]]
