"""Parts of a global batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from amp_rewrite.distributed.collective import Array
from amp_rewrite.errors import DataError
from amp_rewrite.train.data.data_set import DataSet


def part_of_batch(batch: Mapping[str, Array], rank: int, size: int) -> dict[str, Array]:
    """Return the examples of one shard: consecutive ones, equally many for each.

    Raises:
        DataError: The number of examples is no multiple of the number of shards.
    """
    parts: dict[str, Array] = {}
    for name, array in batch.items():
        length = len(array) if array.ndim else 0
        if length % size:
            raise DataError(
                "the batch cannot be divided evenly among the shards",
                where=name,
                found=f"{length} examples",
                expected=f"a multiple of {size}",
                remedy="use a batch of another size, so that the mean over shards is the mean "
                "over examples",
            )
        own = length // size
        parts[name] = array[rank * own : (rank + 1) * own] if array.ndim else array
    return parts


class ShardedData(DataSet):
    """A data set whose batches are one shard's parts of the global batches.

    Every global batch is divided evenly. Of a smaller last one, examples that are left over are
    left out (fewer than there are shards; with shuffling other ones in each epoch), so that every
    shard's mean counts as much.
    """

    def __init__(self, data: DataSet, rank: int, size: int) -> None:
        """Keep the whole; see `Shards.data`."""
        super().__init__(data.arrays, data.where)
        self._rank, self._shards = rank, size

    def steps(self, batch: int, *, drop_last: bool = False) -> int:
        """Return the number of global batches of an epoch.

        Raises:
            DataError: The batch is no multiple of the number of shards.
        """
        self._check(batch)
        whole, rest = divmod(self.size, batch)
        return whole + (rest >= self._shards and not drop_last)

    def batches(
        self,
        batch: int,
        *,
        order: Sequence[int] | Array | None = None,
        start: int = 0,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Array]]:
        """Yield this shard's part of each batch of one epoch.

        Args:
            batch: The number of examples in a global batch.
            order: As for `DataSet`; the same on all shards.
            start: How many batches to leave out at the beginning.
            drop_last: Leave the last one out if it is smaller.

        Raises:
            DataError: The batch is no multiple of the number of shards.
        """
        self._check(batch)
        for whole in super().batches(batch, order=order, start=start, drop_last=drop_last):
            length = max(len(a) for a in whole.values() if a.ndim)
            even = length - length % self._shards
            kept = {name: a[:even] if a.ndim else a for name, a in whole.items()}
            yield part_of_batch(kept, self._rank, self._shards)

    def _check(self, batch: int) -> None:
        if batch % self._shards:
            raise DataError(
                "the batch cannot be divided evenly among the shards",
                found=f"{batch} examples",
                expected=f"a multiple of {self._shards}",
                remedy="choose another global batch or another number of shards",
            )


class WholeData(DataSet):
    """A data set of which every shard sees everything, in batches of the size of its parts."""

    def __init__(self, data: DataSet, size: int) -> None:
        """Keep the data; see `Shards.held_out`."""
        super().__init__(data.arrays, data.where)
        self._shards = size

    def of(self, arrays: Mapping[str, Array]) -> DataSet:
        """Return other examples that are cut into batches alike."""
        return WholeData(DataSet(arrays, self.where), self._shards)

    def steps(self, batch: int, *, drop_last: bool = False) -> int:
        """Return the number of batches, each as large as one shard's part of a global batch."""
        return super().steps(max(1, batch // self._shards), drop_last=drop_last)

    def batches(
        self,
        batch: int,
        *,
        order: Sequence[int] | Array | None = None,
        start: int = 0,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Array]]:
        """Yield batches; see `DataSet` and `steps`."""
        whole = DataSet(self.arrays, self.where)
        own = max(1, batch // self._shards)
        return whole.batches(own, order=order, start=start, drop_last=drop_last)
