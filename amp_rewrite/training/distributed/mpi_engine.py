"""Collectives of MPI, through mpi4py."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from amp_rewrite.errors import ShardError
from amp_rewrite.training.distributed.collective import Array, as_bytes

_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Where Open MPI, and MPICH and its kin, say how many processes they have started."""

_SPIN = 2e-4
_NAP = 1e-4
_FORWARDING = 0.3
"""Seconds between the last output and the end: MPICH's mpiexec drops what it has not read yet."""


def world(timeout: float) -> MpiCollective:
    """Return all processes that mpiexec has started."""
    try:
        mpi = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise ShardError(
            "MPI is not installed",
            found=error,
            remedy="pip install mpi4py mpich, then mpiexec -n 2 python ...",
        ) from error
    for name in _LAUNCHED:
        count = os.environ.get(name, "")
        if mpi.COMM_WORLD.size == 1 and count.isdigit() and int(count) > 1:
            raise ShardError(
                "mpiexec belongs to another MPI library than mpi4py",
                found=f"one shard, and {name}={count} in the environment",
                expected=f"{count} shards",
                remedy="start with the mpiexec of the environment that mpi4py is installed in",
            )
    return MpiCollective(mpi, mpi.COMM_WORLD.Dup(), timeout)


class MpiCollective:
    """A communicator of MPI.

    Every collective is a nonblocking one that is asked until it is done: that moves it on, and
    ends the wait when its time is over.
    """

    def __init__(self, mpi: Any, communicator: Any, timeout: float) -> None:
        """Wrap an Intracomm of mpi4py, which is closed with this object; `timeout` in seconds."""
        self._mpi, self._communicator, self._timeout = mpi, communicator, timeout
        # Apart from the sums: shards that do different things wait for each other in vain, and do
        # not take each other's messages for their own.
        self._apart = communicator.Dup()
        self.rank, self.size = int(communicator.rank), int(communicator.size)
        local = communicator.Split_type(mpi.COMM_TYPE_SHARED)
        self.local_size = int(local.size)
        local.Free()

    def sum(self, buffer: Array) -> None:
        """See `Collective`."""
        self._finish(self._communicator.Iallreduce(self._mpi.IN_PLACE, buffer, self._mpi.SUM))

    def gather(self, array: Array) -> list[Array]:
        """See `Collective`."""
        array = np.ascontiguousarray(array)
        sizes = np.zeros(self.size, np.int64)
        self._finish(self._apart.Iallgather(np.array([array.nbytes], np.int64), sizes))
        whole = np.empty(int(sizes.sum()), np.uint8)
        ends = np.cumsum(sizes)
        where = [whole, (sizes, ends - sizes), self._mpi.BYTE]
        self._finish(self._apart.Iallgatherv([as_bytes(array), self._mpi.BYTE], where))
        parts = np.split(whole, ends[:-1])
        return [part.view(array.dtype).reshape(-1, *array.shape[1:]) for part in parts]

    def broadcast(self, array: Array) -> None:
        """See `Collective`."""
        self._finish(self._apart.Ibcast([as_bytes(array), self._mpi.BYTE], 0))

    def split(self, groups: Sequence[Sequence[int]]) -> MpiCollective:
        """See `Collective`."""
        number = next(i for i, group in enumerate(groups) if self.rank in group)
        position = list(groups[number]).index(self.rank)
        part = self._communicator.Split(number, position)
        return MpiCollective(self._mpi, part, self._timeout)

    def abort(self, status: int) -> None:
        """End all processes; does not return."""
        _abort(self._mpi, status)

    def close(self) -> None:
        """Free the communicators."""
        self._apart.Free()
        self._communicator.Free()

    def _finish(self, request: Any) -> None:
        """Wait for a request: ask until it is done."""
        start = time.monotonic()
        try:
            while not request.Test():
                waited = time.monotonic() - start
                if waited > self._timeout:
                    atexit.register(_abort, self._mpi, 1)  # the end of MPI would wait for ever
                    raise ShardError(
                        "another shard does not answer",
                        where=f"shard {self.rank} of {self.size}",
                        found=f"no answer in {self._timeout:g} seconds",
                        remedy="look for the error of the other shard, and resume from the "
                        "checkpoint; a larger timeout= waits longer",
                    )
                time.sleep(0 if waited < _SPIN else _NAP)
        except self._mpi.Exception as error:
            raise ShardError(
                "MPI reports an error in a collective; another shard may have ended",
                where=f"shard {self.rank} of {self.size}",
                found=error,
                remedy="look for the error of the other shard, and resume from the checkpoint",
            ) from error


def _abort(mpi: Any, status: int) -> None:
    """End all processes, when mpiexec has had the time to read what this one has printed.

    Of another communicator than that of the world, MPICH 4.2 ends this process alone.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    time.sleep(_FORWARDING)
    mpi.COMM_WORLD.Abort(status)
