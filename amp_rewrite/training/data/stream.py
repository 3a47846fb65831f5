"""Batches that somebody else makes: a torch DataLoader, a generator, any iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.examples import Batch, Epoch, Examples


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
        """Yield the batches of one epoch, as the source makes them.

        Raises:
            DataError: The source was an iterator that has been read, yields what is not a batch, or
                ends before the epoch's start.
        """
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
