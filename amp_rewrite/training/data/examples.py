"""What the loop asks of data, wherever the examples lie."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

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


T = TypeVar("T")

_END = object()
"""Comes after the last item."""

_PATIENCE = 0.1
"""Seconds after which the thread looks whether anybody still wants its items."""


def prefetched(items: Iterable[T], ahead: int) -> Generator[T]:
    """Yield items in their order, of which `ahead` are read before they are asked for.

    What raises on the thread raises here, after the items before. When the generator is closed the
    thread ends after the item that it is reading. With 0 each is read when it is asked for, without
    a thread.
    """
    if ahead <= 0:
        yield from items
        return
    reader = _Reader(items, ahead)
    reader.start()
    try:
        while (item := reader.ready.get()) is not _END:
            if isinstance(item, _Failed):
                raise item.error
            yield item
    finally:
        reader.unwanted.set()
        reader.join()


def with_last(items: Iterator[T], *, looks_ahead: bool) -> Iterator[tuple[T, bool]]:
    """Yield items, each with whether it is known to be the last one.

    Args:
        items: What to read.
        looks_ahead: Read one more before each is yielded, without which no last one is known.
    """
    if not looks_ahead:
        yield from ((item, False) for item in items)
        return
    read: Any = next(items, _END)
    while read is not _END:
        item, read = read, next(items, _END)
        yield item, read is _END


@dataclass(frozen=True)
class _Failed:
    error: BaseException


class _Reader(threading.Thread):
    """Puts items into a queue while there is room and somebody wants them."""

    def __init__(self, items: Iterable[Any], ahead: int) -> None:
        super().__init__(name="amp_rewrite prefetch", daemon=True)
        self._items = items
        self.ready: queue.Queue[Any] = queue.Queue(ahead)
        self.unwanted = threading.Event()

    def run(self) -> None:
        try:
            for item in self._items:
                self._offer(item)
                if self.unwanted.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 it is raised where the items are used
            self._offer(_Failed(error))
        else:
            self._offer(_END)

    def _offer(self, item: Any) -> None:
        while not self.unwanted.is_set():
            try:
                self.ready.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return
