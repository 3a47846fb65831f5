"""Data sets: one dictionary of arrays per batch, read one batch at a time."""

from __future__ import annotations

import io
import lzma
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import DataError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.emulate.emulated_feeds import (
    Array,
    FedInputs,
    Feeds,
    feed_specs,
    is_array,
)
from amp_rewrite.numerics.inputs.csv_tables import CSV, batches_of_table

Data = Mapping[str, Any] | Array | Iterable[Any] | str | os.PathLike[str]
"""One batch, several batches, or files: .npz (one batch), .csv, folders of .npz files."""

_ROWS = 8
"""Examples of a `datasets.Dataset` in a batch, if the model says nothing."""

_UNREADABLE = (
    *(OSError, EOFError, ValueError, MemoryError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)
"""Exceptions of numpy and of the archive's compression for a file that is damaged or made up."""


def batches(data: Data, model: ir.Model) -> Iterator[Feeds]:
    """Yield the batches of a data set as a model takes them; files are read one at a time.

    Arrays and tensors without names belong to the inputs in their order. Arrays without an input,
    such as labels, are left out if no input is missing. Numbers of another type of the same kind
    are cast: float64 to float32.

    Args:
        data: A batch, or an iterable of them, such as a torch DataLoader; a `datasets.Dataset`; or
            files and folders.
        model: The model that they are for.

    Raises:
        DataError: A file is missing or unreadable, or something is not a batch.
    """
    fit = FedInputs(feed_specs(model))
    if isinstance(data, Mapping) or is_array(data):
        yield fit.batch(data)
        return
    if isinstance(data, str | os.PathLike):
        data = [data]
    if hasattr(data, "with_format") and hasattr(data, "iter"):  # a datasets.Dataset
        rows: Any = data
        data = cast("Data", rows.with_format("numpy").iter(batch_size=fit.length or _ROWS))
    if not isinstance(data, Iterable):
        raise DataError(
            "not data",
            found=f"an object of type {type(data).__name__}",
            expected="batches (mappings from input names to arrays), or paths of .npz files",
        )
    for item in cast("Iterable[object]", data):
        if isinstance(item, str | os.PathLike):
            for path in files_of(item):
                if path.suffix.lower() in CSV:
                    yield from (fit.batch(rows, path) for rows in batches_of_table(path, fit))
                else:
                    yield fit.batch(read_batch(path), path)
        else:
            yield fit.batch(item)


def count(data: Data) -> int | None:
    """Return the number of batches, or None if only reading would tell."""
    if isinstance(data, Mapping) or is_array(data):
        return 1
    if isinstance(data, str | os.PathLike):
        data = [data]
    if not isinstance(data, list | tuple):
        return None
    items = [files_of(i) if isinstance(i, str | os.PathLike) else [i] for i in data]
    if any(isinstance(i, Path) and i.suffix.lower() in CSV for item in items for i in item):
        return None
    return sum(map(len, items))


def first_batch(data: Data | None) -> Mapping[str, Any]:
    """Return the first batch as it came, by name; nothing of data that can be read only once."""
    first = next(iter(data), None) if isinstance(data, list | tuple) else data
    if isinstance(first, str | os.PathLike):
        files = files_of(cast("str | os.PathLike[str]", first))
        first = read_batch(files[0]) if files[0].suffix.lower() not in CSV else None
    return cast("Mapping[str, Any]", first) if isinstance(first, Mapping) else {}


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return an .npz file itself, or the .npz files of a folder in the order of their names.

    Raises:
        DataError: There is no such file, or the folder holds none.
    """
    source = Path(path_text(path, DataError))
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise DataError(
            "no such data", where=source, expected="an .npz or .csv file, or a folder of .npz files"
        )
    files = sorted(source.glob("*.npz"))
    if not files:
        raise DataError("the folder holds no data", where=source, expected="files named *.npz")
    return files


def check_data(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of data, as `files_of`, after reading the first one, if it is no table."""
    files = files_of(path)
    if files[0].suffix.lower() not in CSV:
        read_batch(files[0])
    return files


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
                raise DataError(
                    "one array, not a batch",
                    where=path,
                    expected="an .npz file",
                    remedy=f"numpy.savez('inputs.npz', INPUT=numpy.load({path!r}))",
                )
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            "the data cannot be read",
            where=path,
            found=reason,
            expected="an .npz file of plain arrays, one per input of the model",
            remedy="write one: numpy.savez('inputs.npz', INPUT=array, ...)",
        ) from error


def npz_bytes(batch: Mapping[str, Any]) -> bytes:
    """Return arrays as an .npz file, which `read_batch` reads: bfloat16 as float32, texts as texts.

    Raises:
        DataError: One of them is a list of tensors, or none at all, which such files cannot hold.
    """
    for name, value in batch.items():
        if not isinstance(value, np.ndarray):
            raise DataError(
                "an .npz file holds arrays alone",
                where=name,
                found="a list of tensors" if isinstance(value, list) else "no value",
                remedy="pass such inputs from Python",
            )
    stream = io.BytesIO()
    plain = {"V": FLOAT32.numpy, "O": np.str_}  # bfloat16, and texts
    arrays: dict[str, Any] = {
        n: a.astype(plain.get(a.dtype.kind, a.dtype), copy=False) for n, a in batch.items()
    }
    np.savez(stream, **arrays)
    return stream.getvalue()
