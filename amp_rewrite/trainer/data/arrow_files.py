"""Parquet and Arrow files as examples: a column is an input, a row an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.trainer.data.chunked import Chunk, ChunkedExamples
from amp_rewrite.trainer.data.examples import Array

PARQUET = (".parquet",)
IPC = (".arrow", ".feather")


def read_arrow(paths: Sequence[Path], where: Path) -> ChunkedExamples:
    """Return the examples of Parquet files and of files in Arrow's IPC format (Feather's).

    A row group or record batch is a chunk. A column holds numbers, lists of one fixed length (to
    any depth) or Arrow's fixed-shape tensors.

    Args:
        paths: The files, all with the same columns.
        where: What the user named.

    Raises:
        DataError: pyarrow is not installed, a file cannot be read, or a column holds something
            else, or nothing in some row.
    """
    return ChunkedExamples([chunk for path in paths for chunk in _chunks(path)], where)


def _chunks(path: Path) -> Iterator[Chunk]:
    pa = _pyarrow(path)
    try:
        counts, read = _parquet(path) if path.suffix in PARQUET else _ipc(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    for index, rows in enumerate(counts):
        yield Chunk(rows, partial(_read, path, read, index))


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise DataError(
            "reading the data needs pyarrow",
            where=path,
            found="it is not installed",
            remedy="pip install pyarrow",
        ) from error
    return pa


def _parquet(path: Path) -> tuple[list[int], Callable[[int], Any]]:
    """Return the lengths of the row groups, and what reads one of them."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path, memory_map=True)
    counts = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    return counts, file.read_row_group


def _ipc(path: Path) -> tuple[list[int], Callable[[int], Any]]:
    """Return the lengths of the record batches, and what reads one of them."""
    import pyarrow as pa

    file = pa.ipc.open_file(pa.memory_map(str(path)))
    counts = [file.get_batch(k).num_rows for k in range(file.num_record_batches)]
    return counts, lambda k: pa.Table.from_batches([file.get_batch(k)])


def _read(path: Path, read: Callable[[int], Any], index: int) -> dict[str, Array]:
    import pyarrow as pa

    try:
        table = read(index)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    names = table.column_names
    return {
        name: _array(column.combine_chunks(), name, path)
        for name, column in zip(names, table.columns, strict=True)
    }


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        "the data cannot be read",
        where=path,
        found=error,
        expected="a Parquet file, or one in Arrow's IPC format",
    )


def _array(column: Any, name: str, path: Path) -> Array:
    """Return the numbers of a column, the first axis over the rows."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):  # which has more than one chunk, or none
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lengths: list[int] = []
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()
    while pa.types.is_fixed_size_list(column.type):
        _check_whole(column, name, path)
        lengths.append(column.type.list_size)
        column = column.flatten()
    _check_whole(column, name, path)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(
            f"the column {name!r} holds no numbers of one shape",
            where=path,
            found=kind,
            expected="numbers, lists of a fixed length, or fixed-shape tensors",
            remedy="leave the column out, or store it as a fixed_size_list",
        )
    numbers = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers).reshape(-1, *lengths)


def _check_whole(column: Any, name: str, path: Path) -> None:
    if column.null_count:
        raise DataError(
            f"the column {name!r} has rows without a value",
            where=path,
            found=f"{column.null_count} nulls",
            remedy="fill them, or leave these rows out",
        )
