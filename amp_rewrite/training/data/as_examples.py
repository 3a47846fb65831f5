"""Examples from files, arrays and loaders, and their interface for the loop."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import read_batch
from amp_rewrite.numerics.inputs.csv_tables import CSV, read_table

Array = np.ndarray[Any, Any]
Batch = dict[str, Any]
"""Input name -> array, or tensor on a device."""


@dataclass(frozen=True)
class Epoch:
    """The arguments of `Examples.epoch`."""

    batch: int
    number: int = 0
    seed: int | None = None
    start: int = 0
    drop_last: bool = False


class Examples(ABC):
    """Examples, in the batches of an epoch."""

    where: object = None
    """The file, for errors, or None."""

    @property
    def size(self) -> int | None:
        """The number of examples; None if it is unknown before they are read."""
        return None

    @property
    def arrays(self) -> dict[str, Array] | None:
        """All examples, if they are in memory."""
        return None

    @property
    def once(self) -> bool:
        """Whether they can be read only once."""
        return False

    @abstractmethod
    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the number of batches of an epoch; None if it is unknown."""

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

        The batches follow from the arguments alone, so that interrupted training can continue.

        Args:
            batch: The number of examples in a batch.
            number: The number of the epoch, from 0.
            seed: Decides the order of the examples; None is the stored order.
            start: The number of batches to skip.
            drop_last: Whether to omit the last batch if it is smaller.

        Raises:
            DataError: The examples cannot be read, or not in such batches.
            OptionError: A number is no integer, or out of range.
        """
        batch, number = arguments.integer("batch", batch, low=1), arguments.integer("epoch", number)
        seed = None if seed is None else arguments.integer("seed", seed)
        start = arguments.integer("start", start)
        return self.batches_of(Epoch(batch, number, seed, start, drop_last))

    @abstractmethod
    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of an epoch; see `epoch`."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """A description by which shards compare their data."""


_HASHED = 1 << 20
"""The number of elements of an array that its signature covers."""


def as_examples(given: Any, names: Sequence[str]) -> Examples:
    """Return examples.

    Args:
        given: An .npz or .csv file; a mapping from input names to arrays, the first axis over the
            examples; a tuple of arrays in the order of the inputs; an iterable of batches such as
            a torch DataLoader, or a function that returns one; or examples.
        names: The inputs of the step.

    Raises:
        DataError: The data cannot be read, hold no examples or do not fit together.
    """
    if isinstance(given, Examples):
        return given
    if isinstance(given, str | os.PathLike):
        return _read(Path(os.fsdecode(given)), names)
    if isinstance(given, Mapping):
        return DataSet(given)
    if isinstance(given, tuple):
        if len(given) != len(names):
            raise DataError(
                "another number of arrays than the step has inputs",
                found=len(given),
                expected=f"{len(names)}: {', '.join(names)}",
            )
        return DataSet(dict(zip(names, given, strict=True)))
    if callable(given) or isinstance(given, Iterable):
        return Stream(cast(Any, given), names)
    raise DataError(
        "no data",
        found=f"an object of type {type(given).__name__}",
        expected="a file, arrays, or an iterable of batches",
    )


def _read(path: Path, names: Sequence[str]) -> DataSet:
    if path.suffix in CSV and path.is_file():
        return DataSet(read_table(path, names), path)
    if path.suffix == ".npz" or not path.exists():
        return DataSet(read_batch(path), path)
    raise DataError(
        "unknown kind of data",
        where=path,
        found="a folder" if path.is_dir() else path.suffix,
        expected=".npz or .csv",
        remedy="in Python, pass an iterable of batches for any other",
    )


class Stream(Examples):
    """Batches of a source: mappings from input names to tensors, or tensors in the inputs' order.

    The source batches and shuffles. If it, its `sampler` or its `dataset` has a method `set_epoch`,
    that is called before each epoch, as for PyTorch's DistributedSampler. A run that is resumed
    within an epoch skips the batches that it has seen, and continues bit for bit if the source
    yields the same batches again.
    """

    def __init__(
        self, source: Iterable[Any] | Callable[[], Iterable[Any]], names: Sequence[str]
    ) -> None:
        """Keep an iterable of batches, or a function that returns one, and the inputs' names."""
        self._source, self._names = source, tuple(names)
        self._once = not callable(source) and iter(source) is source
        self._read = False
        self.where = type(source).__name__

    @property
    def signature(self) -> str:
        """The kind of the source."""
        return f"batches of a {self.where}"

    @property
    def once(self) -> bool:
        """Whether the source is an iterator."""
        return self._once

    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the length of the source if it has one."""
        try:
            return len(self._source)  # pyright: ignore[reportArgumentType] others raise
        except TypeError:
            return None

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one epoch, as the source makes them."""
        longest = count = 0
        for index, item in enumerate(self._items(epoch.number)):
            count = index + 1
            if index < epoch.start:
                continue
            batch = self._batch(item, index)
            length = _length(batch)
            longest = max(longest, length)
            if not epoch.drop_last or length == longest:
                yield batch
        if count < epoch.start:
            raise DataError(
                "there are fewer batches than were seen of this epoch before",
                where=self.where,
                found=count,
                expected=f"at least {epoch.start}",
                remedy="resume with the source with which the checkpoint was saved",
            )

    def _items(self, number: int) -> Iterable[Any]:
        if self._once and self._read:
            raise DataError(
                "the data can be read only once",
                where=self.where,
                remedy="pass a function that returns a new iterator for each epoch",
            )
        self._read = True
        for part in (self._source, *(getattr(self._source, p, None) for p in _PARTS)):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(number)
        items = self._source() if callable(self._source) else self._source
        if not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DataError(
                "the function returns no batches",
                where=self.where,
                found=f"an object of type {type(items).__name__}",
                expected="an iterable of batches",
            )
        return items

    def _batch(self, item: Any, index: int) -> Batch:
        if isinstance(item, Mapping):
            return {str(name): tensor for name, tensor in item.items()}
        tensors = item if isinstance(item, tuple | list) else (item,)
        if len(tensors) != len(self._names):
            raise DataError(
                f"batch {index} has another number of tensors than the step has inputs",
                where=self.where,
                found=len(tensors),
                expected=f"{len(self._names)}: {', '.join(self._names)}",
                remedy="yield mappings from input names to tensors",
            )
        return dict(zip(self._names, tensors, strict=True))


_PARTS = ("sampler", "batch_sampler", "dataset")


def _length(batch: Batch) -> int:
    shapes = (getattr(tensor, "shape", None) for tensor in batch.values())
    return max((shape[0] for shape in shapes if shape is not None and len(shape)), default=0)


class DataSet(Examples):
    """Arrays whose first dimension runs over examples; scalars go into every batch."""

    def __init__(self, arrays: Mapping[str, Any], where: object = None) -> None:
        """Check the arrays; `where` is their file.

        Raises:
            DataError: They are no arrays of numbers, have different lengths, or no examples.
        """
        self.where = where
        self._arrays = {str(name): _numbers(name, array) for name, array in arrays.items()}
        lengths = {name: len(array) for name, array in self._arrays.items() if array.ndim}
        if not lengths or not max(lengths.values()):
            raise DataError(
                "the data hold no examples",
                where=where,
                found=", ".join(self._arrays) or "no arrays",
            )
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

    @property
    def signature(self) -> str:
        """The names, types and shapes of the arrays, and a hash of their first bytes."""
        parts = [f"{n} {a.dtype} {list(a.shape)} {_hash(a)}" for n, a in self.arrays.items()]
        return ", ".join(sorted(parts))

    def steps(self, batch: int, *, drop_last: bool = False) -> int:
        """Return the number of batches of an epoch, with or without the smaller one at its end."""
        return self.size // batch if drop_last else -(-self.size // batch)

    def batches_of(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one epoch, whose order is a function of seed and number alone."""
        order: Array | None = None
        if epoch.seed is not None:
            order = np.random.default_rng([epoch.seed, epoch.number]).permutation(self.size)
        for index in range(epoch.start, self.steps(epoch.batch, drop_last=epoch.drop_last)):
            first, stop = index * epoch.batch, min((index + 1) * epoch.batch, self.size)
            chosen = slice(first, stop) if order is None else order[first:stop]
            yield {name: a[chosen] if a.ndim else a for name, a in self.arrays.items()}


def _numbers(name: object, values: Any) -> Array:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError("no array", where=name, found=error) from error
    if array.dtype.kind in "OSU":
        raise DataError("no array of numbers", where=name, found=f"elements of type {array.dtype}")
    return array


def _hash(array: Array) -> str:
    head = array.ravel()[:_HASHED].tobytes()
    return hashlib.blake2b(head, digest_size=4).hexdigest()
