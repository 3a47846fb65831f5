"""Collectives of torch.distributed, by gloo: what is summed lies in host memory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from amp_rewrite.errors import ShardError
from amp_rewrite.training.distributed.collective import Array, as_bytes

_BACKEND = "gloo"
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def world(timeout: float) -> TorchCollective:
    """Return all processes that torchrun has started.

    Args:
        timeout: Seconds after which a shard that does not answer is given up.

    Raises:
        ShardError: torch is not installed, the process was not started by torchrun, or
            torch.distributed has begun without gloo.
    """
    try:
        torch = importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise ShardError(
            "torch is not installed",
            found=error,
            remedy="pip install 'amp-rewrite[torch]', then torchrun --nproc-per-node 2 ...",
        ) from error
    begun = distributed.is_initialized()
    if not begun:
        missing = [name for name in _LAUNCHED if name not in os.environ]
        if missing:
            raise ShardError(
                "the process was not started by torchrun",
                found=f"no {', '.join(missing)} in the environment",
                remedy="torchrun --nproc-per-node 2 train.py, or initialise torch.distributed",
            )
        try:
            distributed.init_process_group(_BACKEND, timeout=timedelta(seconds=timeout))
        except (RuntimeError, ValueError) as error:
            raise ShardError(
                "torch.distributed cannot begin", where=f"backend {_BACKEND}", found=error
            ) from error
    elif distributed.get_backend() == "nccl":
        raise ShardError(
            "torch.distributed has begun without a backend for host memory",
            found="nccl",
            expected="cpu:gloo,cuda:nccl, or gloo",
            remedy="begin it with one of these, or leave that to amp_rewrite.distributed.torch",
        )
    return TorchCollective(torch, None, timeout, owns=not begun)


class TorchCollective:
    """A process group of torch.distributed."""

    def __init__(self, torch: Any, group: Any, timeout: float, *, owns: bool) -> None:
        """Wrap a ProcessGroup, None the default one; closing ends what it `owns`."""
        self._torch, self._group, self._owns = torch, group, owns
        self._distributed = torch.distributed
        self._timeout = timedelta(seconds=timeout)
        self.rank = int(self._distributed.get_rank(group))
        self.size = int(self._distributed.get_world_size(group))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))

    def sum(self, buffer: Array) -> None:
        """See `Collective`."""
        self._run(self._distributed.all_reduce, self._torch.from_numpy(buffer))

    def gather(self, array: Array) -> list[Array]:
        """See `Collective`; the parts travel padded to the longest."""
        array = np.ascontiguousarray(array)
        sizes = self._gather(np.array([array.nbytes], np.int64))
        lengths = [int(size[0]) for size in sizes]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: array.nbytes] = as_bytes(array)
        parts = self._gather(padded) if padded.size else [padded] * self.size
        return [
            part[:length].view(array.dtype).reshape(-1, *array.shape[1:])
            for part, length in zip(parts, lengths, strict=True)
        ]

    def _gather(self, array: Array) -> list[Array]:
        into = [np.empty_like(array) for _ in range(self.size)]
        tensors = [self._torch.from_numpy(part) for part in into]
        self._run(self._distributed.all_gather, tensors, self._torch.from_numpy(array))
        return into

    def broadcast(self, array: Array) -> None:
        """See `Collective`."""
        if not array.nbytes:
            return
        root = 0 if self._group is None else self._distributed.get_global_rank(self._group, 0)
        self._run(self._distributed.broadcast, self._torch.from_numpy(as_bytes(array)), root)

    def split(self, groups: Sequence[Sequence[int]]) -> TorchCollective:
        """See `Collective`."""
        communicators = [
            self._distributed.new_group(list(g), timeout=self._timeout) for g in groups
        ]
        own = next(m for m, group in zip(communicators, groups, strict=True) if self.rank in group)
        return TorchCollective(self._torch, own, self._timeout.total_seconds(), owns=False)

    def abort(self, status: int) -> None:
        """Return: torchrun ends the other processes when this one ends."""

    def close(self) -> None:
        """End torch.distributed if this object began it."""
        if self._owns and self._distributed.is_initialized():
            self._distributed.destroy_process_group()

    def _run(self, collective: Callable[..., Any], *arguments: Any) -> None:
        try:
            collective(*arguments, group=self._group, async_op=True).wait(self._timeout)
        except RuntimeError as error:
            seconds = self._timeout.total_seconds()
            raise ShardError(
                "another shard has ended or does not answer",
                where=f"shard {self.rank} of {self.size}",
                found=str(error).splitlines()[0].split(". ")[0],
                remedy="look for the error of the other shard, and resume from the checkpoint; "
                f"the timeout is {seconds:g} seconds",
            ) from error
