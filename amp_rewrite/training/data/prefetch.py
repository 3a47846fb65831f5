"""Read ahead on a thread, while the step before is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

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
