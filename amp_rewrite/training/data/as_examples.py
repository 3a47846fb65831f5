"""Examples from whatever users have: files, arrays, loaders.

Data that cannot be read, hold no examples or do not fit together are a DataError.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import read_batch
from amp_rewrite.numerics.inputs.csv_tables import CSV, read_table
from amp_rewrite.training.data.examples import Array, Batch, Epoch, Examples

_HASHED = 1 << 20
"""Elements of an array that its signature looks at."""


def as_examples(given: Any, names: Sequence[str]) -> Examples:
    """Return examples.

    Args:
        given: An .npz or .csv file; a mapping from input names to arrays, the first axis over the
            examples; a tuple of arrays in the order of the inputs; an iterable of batches such as
            a torch DataLoader, or a function that returns one; or examples.
        names: The inputs of the step.
    """
    if isinstance(given, Examples):
        return given
    if isinstance(given, str | os.PathLike):
        return _read(Path(os.fsdecode(given)), names)
    if isinstance(given, Mapping):
        return DataSet(_arrays(given.items()))
    if isinstance(given, tuple):
        if len(given) != len(names):
            raise DataError(
                "another number of arrays than the step has inputs",
                found=len(given),
                expected=f"{len(names)}: {', '.join(names)}",
            )
        return DataSet(_arrays(zip(names, given, strict=True)))
    if callable(given) or isinstance(given, Iterable):
        return Stream(cast(Any, given), names)
    raise DataError(
        "no data",
        found=f"an object of type {type(given).__name__}",
        expected="a file, arrays, or an iterable of batches",
    )


def _read(path: Path, names: Sequence[str]) -> DataSet:
    """Return the examples of a file."""
    if path.suffix in CSV and path.is_file():
        return DataSet(read_table(path, names), path)
    if path.suffix == ".npz" or not path.exists():
        return DataSet.read(path)
    raise DataError(
        "unknown kind of data",
        where=path,
        found="a folder" if path.is_dir() else path.suffix,
        expected=".npz or .csv",
        remedy="in Python, pass an iterable of batches for any other",
    )


def _arrays(items: Iterable[tuple[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, values in items:
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise DataError("no array", where=name, found=error) from error
        if array.dtype.kind in "OSU":
            raise DataError(
                "no array of numbers", where=name, found=f"elements of type {array.dtype}"
            )
        arrays[str(name)] = array
    return arrays


class Stream(Examples):
    """Batches as they come.

    Each is a mapping from input names to tensors, or tensors in the order of the step's inputs;
    a tensor is what `TrainingSession.run` takes. How examples are batched and shuffled is the
    source's affair. If it, its `sampler` or its `dataset` has a method `set_epoch`, that is called
    before each epoch, as for PyTorch's DistributedSampler. Training that is interrupted within an
    epoch goes on bit for bit if the source yields the same batches again: those that were seen are
    read and left out.
    """

    def __init__(
        self, source: Iterable[Any] | Callable[[], Iterable[Any]], names: Sequence[str]
    ) -> None:
        """Keep the source.

        Args:
            source: An iterable of batches, or a function that returns one for each epoch.
            names: The inputs of the step, for batches that are tuples or lists.
        """
        self._source, self._names = source, tuple(names)
        self._once = not callable(source) and iter(source) is source
        self._read = False
        self.where = type(source).__name__

    @property
    def signature(self) -> str:
        """The kind of the source: nobody can look into it twice."""
        return f"batches of a {self.where}"

    @property
    def once(self) -> bool:
        """Whether the source is an iterator."""
        return self._once

    def steps(self, batch: int, *, drop_last: bool = False) -> int | None:
        """Return the length of the source if it has one."""
        try:
            return len(self._source)  # pyright: ignore[reportArgumentType] what has none raises
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
        """Read an .npz file with one array per input."""
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
