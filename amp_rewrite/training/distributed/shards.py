"""The shards of a training run: processes that run the same program on parts of the data."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.errors import AmpError, DataError
from amp_rewrite.training.data.as_examples import Batch, Epoch, Examples, as_examples
from amp_rewrite.training.distributed import mpi_engine
from amp_rewrite.training.distributed.collective import Array, Collective, compare
from amp_rewrite.training.distributed.staged_program import SessionSharding
from amp_rewrite.training.graph.replicas import Groups, ShardContext, Sharding

TIMEOUT = 300.0
"""Seconds after which a shard that does not answer is given up."""

_logger = logging.getLogger(__name__)


class Shards(ShardContext):
    """The shards of a run, seen from one of them.

    Inside a `with` block optimizers and sessions find them by themselves. An error that leaves the
    block on one shard ends the others too, where the engine can do so.

    Attributes:
        rank: The number of this shard, from 0.
        size: How many there are.
        collective: The engine.
    """

    size: int

    def __init__(self, collective: Collective) -> None:
        """Use `mpi`, or pass a `Collective` of one's own."""
        super().__init__(collective.size)
        self.collective, self.rank = collective, collective.rank
        self._groups: dict[Groups, Collective] = {}

    @property
    def is_first(self) -> bool:
        """Whether this shard writes the files."""
        return self.rank == 0

    def part(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Return this shard's examples of a global batch, whose number of examples they divide.

        Args:
            batch: Input name -> array whose first axis runs over examples; arrays without axes
                go to every shard.
        """
        arrays_by_name = arguments.mapping("batch", batch, what="arrays by the names of inputs")
        arrays = {name: arguments.array(str(name), array) for name, array in arrays_by_name.items()}
        return _part_of_batch(arrays, self.rank, self.size)

    def data(self, data: Any, names: Sequence[str] = ()) -> ShardedExamples:
        """Return examples whose batches are this shard's parts of the global ones.

        Args:
            data: A file, arrays by input name, or an iterable of global batches.
            names: The inputs of the step, for batches that are tuples.
        """
        return ShardedExamples(as_examples(data, names), self.rank, self.size)

    def held_out(self, data: Any, names: Sequence[str] = ()) -> Examples:
        """Return data, as for `data`, to evaluate on: every shard sees all, and finds the same."""
        return as_examples(data, names)

    def compare(self, what: str, text: str) -> None:
        """Check that a text is the same on all shards; all of them must call it.

        Args:
            what: The words for the text in the error.
            text: One line.
        """
        arguments.text("text", text, what="what the shards are to agree on")
        compare(self.collective, what, text)

    def sharding(self) -> Sharding | None:
        """See `ShardContext`."""
        return SessionSharding(self.collective, self._groups)

    def close(self) -> None:
        """Release the engine; all shards must call it."""
        for group in self._groups.values():
            if group is not self.collective:
                group.close()
        self._groups.clear()
        self.collective.close()

    def fail(self, error: BaseException) -> None:
        """Report an error of this shard, and end the others."""
        where = f"shard {self.rank} of {self.size}"
        if self.size > 1:
            if isinstance(error, AmpError):
                text = str(error)
                _logger.critical(text if text.startswith(where) else f"{where}: {text}")
            else:
                _logger.critical("%s has failed", where, exc_info=error)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            self.collective.abort(1)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the shards; an error ends those of other processes too."""
        super().__exit__(kind, error, trace)
        if error is None:
            self.close()
        elif not (isinstance(error, SystemExit) and not error.code):
            self.fail(error)


def mpi(timeout: float = TIMEOUT) -> Shards:
    """Return the shards that mpiexec has started: `mpiexec -n 2 python train.py`.

    Args:
        timeout: Seconds after which a shard that does not answer is given up.

    Raises:
        OptionError: `timeout` is no positive number of seconds.
        ShardError: mpi4py or an MPI library is not installed.
    """
    expected = "a positive number of seconds"
    seconds = arguments.number("timeout", timeout, low=0, above=True, expected=expected)
    return Shards(mpi_engine.world(seconds))


def shard_context(number_of_shards: int | None = None) -> ShardContext:
    """Return a context in which steps for several shards are built, and none is run.

    Args:
        number_of_shards: What group assignments are checked against; None if any number will do.
    """
    return ShardContext(number_of_shards)


def _part_of_batch(batch: Mapping[str, Array], rank: int, size: int) -> dict[str, Array]:
    """Return the examples of one shard: consecutive ones, equally many for each."""
    parts: dict[str, Array] = {}
    for name, array in batch.items():
        length = len(array) if array.ndim else 0
        _check_even(length, size, name)
        own = length // size
        parts[name] = array[rank * own : (rank + 1) * own] if array.ndim else array
    return parts


class ShardedExamples(Examples):
    """One shard's parts of the global batches; every shard reads them all.

    Every global batch is divided evenly. Of a smaller last one, examples that are left over are
    left out (fewer than there are shards; with shuffling other ones in each epoch), so that every
    shard's mean counts as much.
    """

    def __init__(self, whole: Examples, rank: int, size: int) -> None:
        """Keep the whole; see `Shards.data`."""
        self.where = whole.where
        self._whole, self._rank, self._shards = whole, rank, size

    @property
    def size(self) -> int | None:
        """The number of examples of all shards."""
        return self._whole.size

    @property
    def arrays(self) -> dict[str, Array] | None:
        """The examples of all shards, if they are in memory."""
        return self._whole.arrays

    @property
    def signature(self) -> str:
        """That of the whole."""
        return self._whole.signature

    @property
    def once(self) -> bool:
        """Whether the whole can be read only once."""
        return self._whole.once

    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the number of global batches of an epoch."""
        size = self._whole.size
        if size is None:
            return self._whole.steps(batch, drop_last=drop_last)
        _check_even(arguments.integer("batch", batch, low=1), self._shards)
        whole, rest = divmod(size, batch)
        return whole + (rest >= self._shards and not drop_last)

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield this shard's part of each batch of one epoch."""
        if self._whole.size is not None:
            _check_even(arguments.integer("batch", epoch.batch, low=1), self._shards)
        for whole in self._whole.batches_of(epoch):
            length = max(len(array) for array in whole.values() if array.ndim)
            even = length - length % self._shards
            if even:
                kept = {
                    name: array[:even] if array.ndim else array for name, array in whole.items()
                }
                yield _part_of_batch(kept, self._rank, self._shards)


def _check_even(examples: int, shards: int, where: str | None = None) -> None:
    if examples % shards:
        raise DataError(
            "the batch cannot be divided evenly among the shards",
            where=where,
            found=f"{examples} examples",
            expected=f"a multiple of {shards}",
            remedy="use a batch of another size, so that the mean over shards is the mean over "
            "examples",
        )
