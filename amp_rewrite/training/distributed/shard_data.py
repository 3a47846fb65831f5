"""Parts of a global batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError
from amp_rewrite.training.data.examples import Batch, Epoch, Examples
from amp_rewrite.training.distributed.collective import Array


def part_of_batch(batch: Mapping[str, Array], rank: int, size: int) -> dict[str, Array]:
    """Return the examples of one shard: consecutive ones, equally many for each.

    Raises:
        DataError: The number of examples is not a multiple of the number of shards.
    """
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
        """Return the number of global batches of an epoch.

        Raises:
            DataError: The batch is not a multiple of the number of shards.
        """
        size = self._whole.size
        if size is None:
            return self._whole.steps(batch, drop_last=drop_last)
        _check_divides(batch, self._shards)
        whole, rest = divmod(size, batch)
        return whole + (rest >= self._shards and not drop_last)

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield this shard's part of each batch of one epoch.

        Raises:
            DataError: The batch is not a multiple of the number of shards.
        """
        if self._whole.size is not None:
            _check_divides(epoch.batch, self._shards)
        for whole in self._whole.batches_of(epoch):
            length = max(len(array) for array in whole.values() if array.ndim)
            even = length - length % self._shards
            if even:
                kept = {
                    name: array[:even] if array.ndim else array for name, array in whole.items()
                }
                yield part_of_batch(kept, self._rank, self._shards)


def _check_divides(batch: int, shards: int) -> None:
    _check_even(arguments.integer("batch", batch, low=1), shards)


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
