"""Weights that several models share: written once into a folder that is new.

Two models of one folder may read one data file, as a decoder and its form with past keys do. While
they are written in turn, each stream that is in a data file already is referred to there. A data
file is called as exporters call it and transformers.js looks for it: `model.onnx_data`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from amp_rewrite.graph.streams import FileRange, Stream

SUFFIX = "_data"
"""What the name of a data file has behind that of its model."""

PlaceT = TypeVar("PlaceT", bound=tuple[Any, ...])


_Source = tuple[str, str, int]
"""Into which folder something goes, and from where it comes: a file and the first byte in it."""


class _Key(NamedTuple):
    """What is the same of streams of the same bytes: their source, and what becomes of it."""

    source: _Source
    elements: int
    dtype: str
    conversions: tuple[Any, ...]


class SharedData:
    """What has been written of the weights of several models into one folder.

    Attributes:
        once: Bytes that a further model refers to, in place of a copy.
        again: Bytes that were written again, since a model needs them in another type.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        """Begin with nothing written; no data file may have a path that is `taken`."""
        self.once = self.again = self._in_memory = 0
        self._taken = frozenset(taken)
        self._places: dict[_Key, Any] = {}
        self._sources: set[_Source] = set()

    def data_name(self, folder: str, name: str) -> str | None:
        """Return what the data file of a model is called; None if the name is not free."""
        file_name = f"{name}{SUFFIX}"
        return None if os.path.join(folder, file_name) in self._taken else file_name

    def places(
        self,
        folder: str,
        external: Sequence[Stream],
        write: Callable[[Sequence[Stream]], Iterable[PlaceT]],
    ) -> list[PlaceT]:
        """Return the place of each stream; `write` gives those of the ones that have none yet."""
        keys = [self._key(folder, stream) for stream in external]
        fresh = {key: s for key, s in zip(keys, external, strict=True) if key not in self._places}
        placed = sum(s.nbytes for k, s in zip(keys, external, strict=True) if k in self._places)
        self.once += placed
        self.again += sum(
            stream.nbytes for key, stream in fresh.items() if key.source in self._sources
        )
        self._sources.update(key.source for key in fresh)
        if fresh:
            self._places.update(zip(fresh, write([*fresh.values()]), strict=True))
        return [self._places[key] for key in keys]

    def _key(self, folder: str, stream: Stream) -> _Key:
        if isinstance(stream.origin, FileRange):
            file, offset = os.path.realpath(stream.origin.path), stream.origin.offset
        else:  # what was in memory is nobody else's
            self._in_memory += 1
            file, offset = "", self._in_memory
        return _Key((folder, file, offset), stream.count, stream.dtype.str, stream.conversions)


_SHARED: ContextVar[SharedData | None] = ContextVar("shared_data", default=None)


@contextmanager
def sharing(data: SharedData) -> Generator[None]:
    """Let the models that are written in the block share data files."""
    before = _SHARED.set(data)
    try:
        yield
    finally:
        _SHARED.reset(before)


def shared_data() -> SharedData | None:
    """Return what the models that are being written share, if anything."""
    return _SHARED.get()
