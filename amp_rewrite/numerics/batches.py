"""Data sets: one dictionary of arrays per batch, read one batch at a time."""

from __future__ import annotations

import lzma
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from amp_rewrite.errors import DataError
from amp_rewrite.graph.io.paths import path_text

Array = NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name -> array: one batch."""

Data = Feeds | Iterable[Feeds] | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One batch, several batches, or .npz files and folders of them (one batch a file)."""

_UNREADABLE = (
    *(OSError, EOFError, ValueError, MemoryError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)
"""What numpy and the archive's compression raise on a file that is damaged or made up."""


def batches(data: Data) -> Iterator[Feeds]:
    """Yield the batches of a data set; files are read when their turn comes.

    Raises:
        DataError: A file is missing or unreadable, or something is not a batch.
    """
    if isinstance(data, Mapping):
        yield _batch(cast("Feeds", data))
        return
    if isinstance(data, str | os.PathLike):
        data = [data]
    for item in _items(data):
        if isinstance(item, Mapping):
            yield _batch(cast("Feeds", item))
        elif isinstance(item, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            for path in files_of(item):
                yield read_batch(path)
        else:
            raise DataError(
                "not a batch",
                found=type(item).__name__,
                expected="a mapping from input names to arrays, or the path of an .npz file",
            )


def _batch(given: Feeds) -> Feeds:
    for name in given:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DataError("the name of an input must be a string", found=repr(name))
    return given


def _items(data: object) -> Iterable[object]:
    if not isinstance(data, Iterable):
        raise DataError(
            "not data",
            found=f"an object of type {type(data).__name__}",
            expected="batches (mappings from input names to arrays), or paths of .npz files",
        )
    return cast("Iterable[object]", data)


def count(data: Data) -> int | None:
    """Return the number of batches, or None if only reading would tell."""
    if isinstance(data, Mapping):
        return 1
    if isinstance(data, str | os.PathLike):
        return len(files_of(data))
    if not isinstance(data, list | tuple):
        return None
    return sum(len(files_of(i)) if isinstance(i, str | os.PathLike) else 1 for i in data)


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return an .npz file itself, or the .npz files of a folder in the order of their names.

    Raises:
        DataError: There is no such file, or the folder holds none.
    """
    given = Path(path_text(path, DataError))
    if given.is_file():
        return [given]
    if not given.is_dir():
        raise DataError("no such data", where=given, expected="an .npz file or a folder of them")
    found = sorted(given.glob("*.npz"))
    if not found:
        raise DataError("the folder holds no data", where=given, expected="files named *.npz")
    return found


def read_batch(path: str | os.PathLike[str]) -> Feeds:
    """Return the arrays of an .npz file by input name.

    Raises:
        DataError: The file is no .npz file, or needs pickle.
    """
    path = path_text(path, DataError)
    try:
        # np.load leaves a file open that it opened itself and cannot read.
        with open(path, "rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise DataError("one array, not a batch", where=path, expected="an .npz file")
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise DataError(
            "the data cannot be read",
            where=path,
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected="an .npz file of plain arrays, one per input of the model",
        ) from error
