"""What the loop asks of data, wherever the examples lie: whole or in chunks."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_rewrite.errors import DataError

Array = np.ndarray[Any, Any]
Batch = dict[str, Any]
"""Input name -> array; of data that come as tensors on a device, those tensors."""


@dataclass(frozen=True)
class Epoch:
    """The arguments of `Examples.epoch`, which says what they are."""

    batch: int
    number: int = 0
    seed: int | None = None
    start: int = 0
    drop_last: bool = False


class Examples(ABC):
    """Examples, in the batches of an epoch.

    Attributes:
        where: The file or folder, for errors, or None.
    """

    where: object = None

    @property
    def size(self) -> int | None:
        """The number of examples; None if nobody knows before they have been read."""
        return None

    @property
    def arrays(self) -> dict[str, Array] | None:
        """All examples, if they are in memory and can be looked through before training."""
        return None

    @property
    def once(self) -> bool:
        """Whether they can be read only once."""
        return False

    @abstractmethod
    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the number of batches of an epoch, None if nobody knows.

        Args:
            batch: The number of examples in a batch.
            drop_last: Whether the smaller one at the end is left out.
        """

    def epoch(
        self,
        batch: int,
        *,
        number: int = 0,
        seed: int | None = None,
        start: int = 0,
        drop_last: bool = False,
    ) -> Iterator[Batch]:
        """Yield the batches of one epoch; the last one may be smaller.

        Which examples are in which batch follows from the arguments alone, so that training that
        was interrupted goes on with the batches that it would have seen.

        Args:
            batch: The number of examples in a batch.
            number: Which epoch it is, from 0.
            seed: Decides the order of the examples; None leaves them as they are stored.
            start: How many batches to leave out at the beginning.
            drop_last: Leave the last one out if it is smaller.

        Raises:
            DataError: The examples cannot be read, or not in such batches.
        """
        return self.batches_of(Epoch(batch, number, seed, start, drop_last))

    @abstractmethod
    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Do what `epoch` does, given its arguments as one."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """What tells these data from others: shards compare it."""


@dataclass(frozen=True)
class Chunk:
    """Some examples.

    Attributes:
        rows: How many.
        read: Returns input name -> array, the first axis over the examples.
    """

    rows: int
    read: Callable[[], dict[str, Array]]


class ChunkedExamples(Examples):
    """Examples of which one chunk at a time is in memory.

    Shuffling changes the order of the chunks, and that of the examples inside each chunk: the
    smaller the chunks, the better mixed are the batches.
    """

    def __init__(self, chunks: Sequence[Chunk], where: object) -> None:
        """Keep the chunks that hold something."""
        self.where = where
        self._chunks = [chunk for chunk in chunks if chunk.rows]
        if not self._chunks:
            raise DataError("the data hold no examples", where=where)

    @property
    def size(self) -> int:
        """The number of examples."""
        return sum(chunk.rows for chunk in self._chunks)

    @property
    def signature(self) -> str:
        """The lengths of the chunks, and a hash of the first one."""
        digest = hashlib.blake2b(digest_size=4)
        for name, array in sorted(self._chunks[0].read().items()):
            digest.update(f"{name} {array.dtype} {array.shape[1:]}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return f"{[chunk.rows for chunk in self._chunks]} {digest.hexdigest()}"

    def steps(self, batch: int, *, drop_last: bool = False) -> int:
        """Return the number of batches of an epoch; see `Examples`."""
        return self.size // batch if drop_last else -(-self.size // batch)

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one epoch. Chunks before the start are not read."""
        held: dict[str, Array] = {}
        batch = epoch.batch
        for arrays in self._in_order(epoch.number, epoch.seed, epoch.start * batch):
            joined = self._joined(held, arrays)
            rows = len(next(iter(joined.values())))
            whole = rows - rows % batch
            for first in range(0, whole, batch):
                yield {name: array[first : first + batch] for name, array in joined.items()}
            held = {name: array[whole:] for name, array in joined.items()} if whole < rows else {}
        if held and not epoch.drop_last:
            yield dict(held)

    def _in_order(self, number: int, seed: int | None, skip: int) -> Iterator[dict[str, Array]]:
        """Yield the chunks of an epoch without its first `skip` examples."""
        count = len(self._chunks)
        order = range(count) if seed is None else _generator(seed, number).permutation(count)
        for index in order:
            chunk = self._chunks[index]
            if skip >= chunk.rows:
                skip -= chunk.rows
                continue
            arrays = chunk.read()
            if seed is not None:
                mixed = _generator(seed, number, int(index)).permutation(chunk.rows)
                arrays = {name: array[mixed] for name, array in arrays.items()}
            yield {name: array[skip:] for name, array in arrays.items()}
            skip = 0

    def _joined(self, held: dict[str, Array], arrays: dict[str, Array]) -> dict[str, Array]:
        """Return the rows of two chunks together."""
        for name, rows in held.items():
            if rows.shape[1:] != arrays[name].shape[1:]:
                raise DataError(
                    f"the rows of {name!r} have different shapes",
                    where=self.where,
                    found=f"{list(rows.shape[1:])} and {list(arrays[name].shape[1:])}",
                    expected="one shape in all rows",
                )
        if not held:
            return arrays
        return {name: np.concatenate([held[name], array]) for name, array in arrays.items()}


def _generator(*seeds: int) -> np.random.Generator:
    return np.random.default_rng(seeds)
