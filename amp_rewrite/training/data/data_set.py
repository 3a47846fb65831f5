"""Arrays of examples in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import read_batch
from amp_rewrite.training.data.examples import Array, Batch, Epoch, Examples

_HASHED = 1 << 20
"""Elements of an array that its signature looks at."""


class DataSet(Examples):
    """Arrays whose first dimension runs over examples.

    Attributes:
        arrays: Input name -> array; one without dimensions goes into every batch as it is.
        size: The number of examples.
        where: The file, or None.
    """

    def __init__(self, arrays: Mapping[str, Array], where: object = None) -> None:
        """Check that the arrays have one length.

        Args:
            arrays: Input name -> array.
            where: The file, for errors.

        Raises:
            DataError: There is no example, or lengths differ.
        """
        self.where = where
        if not isinstance(arrays, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DataError(
                "not a data set",
                where=where,
                found=f"an object of type {type(arrays).__name__}",
                expected="arrays by the names of inputs, or an .npz file",
            )
        self._arrays = {name: arguments.array(str(name), array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self._arrays.items() if array.ndim}
        if not lengths or not max(lengths.values()):
            raise DataError("the data hold no examples", where=where, found=", ".join(arrays))
        if len(set(lengths.values())) > 1:
            raise DataError(
                "the arrays have different numbers of examples",
                where=where,
                found=", ".join(f"{name}: {n}" for name, n in lengths.items()),
                expected="one length",
            )
        self._size = next(iter(lengths.values()))

    @property
    def size(self) -> int:
        """The number of examples."""
        return self._size

    @property
    def arrays(self) -> dict[str, Array]:
        """Input name -> array."""
        return self._arrays

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DataSet:
        """Read an .npz file with one array per input.

        Raises:
            DataError: The file cannot be read, or does not hold a data set.
        """
        return cls(read_batch(path), path)

    @property
    def signature(self) -> str:
        """The names, types and shapes of the arrays, and a hash of their first bytes."""
        parts = [f"{n} {a.dtype} {list(a.shape)} {_hash(a)}" for n, a in self.arrays.items()]
        return ", ".join(sorted(parts))

    def steps(self, batch: int, *, drop_last: bool = False) -> int:
        """Return the number of batches of an epoch, with or without the smaller one at its end."""
        return self.size // batch if drop_last else -(-self.size // batch)

    def batches(
        self,
        batch: int,
        *,
        order: Array | None = None,
        start: int = 0,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Array]]:
        """Yield the batches of one epoch; the last one may be smaller.

        Args:
            batch: The number of examples in a batch.
            order: The order of the examples; as they are stored if None.
            start: How many batches to leave out at the beginning.
            drop_last: Leave the last one out if it is smaller.

        Raises:
            OptionError: `batch` or `start` is impossible.
        """
        batch = arguments.integer("batch", batch, low=1)
        start = arguments.integer("start", start)
        for index in range(start, self.steps(batch, drop_last=drop_last)):
            first, stop = index * batch, min((index + 1) * batch, self.size)
            chosen = slice(first, stop) if order is None else order[first:stop]
            yield {name: a[chosen] if a.ndim else a for name, a in self.arrays.items()}

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Return the batches of one epoch."""
        order = None if epoch.seed is None else self.shuffled(epoch.seed, epoch.number)
        return self.batches(epoch.batch, order=order, start=epoch.start, drop_last=epoch.drop_last)

    def shuffled(self, seed: int, epoch: int) -> Array:
        """Return the order of the examples in an epoch: a function of seed and epoch alone."""
        numbers = [arguments.integer("seed", seed), arguments.integer("epoch", epoch)]
        return np.random.default_rng(numbers).permutation(self.size)


def _hash(array: Array) -> str:
    head = array.ravel()[:_HASHED].tobytes()
    return hashlib.blake2b(head, digest_size=4).hexdigest()
