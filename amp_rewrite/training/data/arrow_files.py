"""Parquet and Arrow files as examples: a column is an input, a row an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.examples import Array, Chunk, ChunkedExamples

PARQUET = (".parquet",)
IPC = (".arrow", ".feather")
_FILE = b"ARROW1"
"""How a file in Arrow's IPC format begins, and a stream does not."""


def read_arrow(paths: Sequence[Path], where: Path) -> ChunkedExamples:
    """Return the examples of Parquet files and of files in Arrow's IPC format (Feather's).

    A row group or record batch is a chunk. A column holds numbers, lists of one length (to any
    depth) or Arrow's fixed-shape tensors. All files have the same columns.

    Raises:
        DataError: pyarrow is not installed, a file cannot be read, a column holds something else,
            or nothing in some row, or the files have different columns.
    """
    files = [(path, _open(path)) for path in paths]
    columns = [(path, _columns(file.schema, path)) for path, file in files]
    for path, other in columns[1:]:
        _check_same(other, path, *columns[0])
    return ChunkedExamples([chunk for path, file in files for chunk in _chunks(path, file)], where)


class _File(NamedTuple):
    """A file of columns.

    Attributes:
        schema: The names and types of the columns, as pyarrow describes them.
        counts: The numbers of rows in the row groups or record batches.
        read: Returns one of these.
    """

    schema: Any
    counts: list[int]
    read: Callable[[int], Any]


def _open(path: Path) -> _File:
    pa = _pyarrow(path)
    try:
        return _parquet(path) if path.suffix in PARQUET else _ipc(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _chunks(path: Path, file: _File) -> Iterator[Chunk]:
    for index, rows in enumerate(file.counts):
        yield Chunk(rows, partial(_read, path, file.read, index))


def _columns(schema: Any, path: Path) -> dict[str, str]:
    """Return name -> what the rows of the column are: a type, and the shape that it has."""
    columns: dict[str, str] = {}
    for field in schema:
        if field.name in columns:
            raise DataError("two columns have one name", where=path, found=repr(field.name))
        kind, lengths = _layout(field.type)
        columns[field.name] = f"{kind} {lengths}"
    return columns


def _layout(kind: Any) -> tuple[Any, list[int]]:
    """Return the type of the numbers in a column, and the shape of a row."""
    import pyarrow as pa

    if isinstance(kind, pa.FixedShapeTensorType):
        order = kind.permutation or range(len(kind.shape))
        return kind.value_type, [kind.shape[axis] for axis in order]
    lengths: list[int] = []
    while pa.types.is_fixed_size_list(kind):
        lengths.append(kind.list_size)
        kind = kind.value_type
    return kind, lengths


def _check_same(columns: dict[str, str], path: Path, first: Path, expected: dict[str, str]) -> None:
    """Refuse a file whose columns are not those of the first one."""
    for name in (*expected, *columns):
        if columns.get(name) != expected.get(name):
            raise DataError(
                f"the files have different columns: {name!r}",
                where=path,
                found=columns.get(name, "no such column"),
                expected=f"{expected.get(name, 'no such column')}, as in {first.name}",
                remedy="write all files with the same columns",
            )


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


def _parquet(path: Path) -> _File:
    from pyarrow import parquet

    file = parquet.ParquetFile(path, memory_map=True)
    counts = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    return _File(file.schema_arrow, counts, file.read_row_group)


def _ipc(path: Path) -> _File:
    import pyarrow as pa

    source = pa.memory_map(str(path))
    if source.read(len(_FILE)) != _FILE:
        return _stream(source)
    file = pa.ipc.open_file(source)
    counts = [file.get_batch(k).num_rows for k in range(file.num_record_batches)]
    return _File(file.schema, counts, lambda k: pa.Table.from_batches([file.get_batch(k)]))


def _stream(source: Any) -> _File:
    """Return a stream of Arrow's, which `datasets` writes, too; its batches stay in the file."""
    import pyarrow as pa

    source.seek(0)
    stream = pa.ipc.open_stream(source)
    batches = list(stream)
    counts = [batch.num_rows for batch in batches]
    return _File(stream.schema, counts, lambda k: pa.Table.from_batches([batches[k]]))


def _read(path: Path, read: Callable[[int], Any], index: int) -> dict[str, Array]:
    import pyarrow as pa

    try:
        table = read(index)
        return {
            name: _array(column.combine_chunks(), name, path)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: object) -> DataError:
    return DataError(
        "the data cannot be read",
        where=path,
        found=error,
        expected="a Parquet file, or one in Arrow's IPC format",
    )


def _array(column: Any, name: str, path: Path) -> Array:
    """Return the numbers of a column, the first axis over the rows."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):  # which has more than one chunk
        column = pa.concat_arrays(column.chunks)
    tensors = column if isinstance(column, pa.FixedShapeTensorArray) else None
    column = column if tensors is None else tensors.storage
    lengths: list[int] = []
    while _is_list(column.type):
        _check_whole(column, name, path)
        lengths.append(_length(column, name, path))
        column = column.flatten()
    _check_whole(column, name, path)
    _check_numbers(column.type, name, path)
    if tensors is not None:
        if pa.types.is_boolean(column.type):  # of single bits, which old releases misread
            raise _unreadable(path, "tensors of bools")
        return tensors.to_numpy_ndarray()
    numbers = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers).reshape(-1, *lengths)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)


def _length(column: Any, name: str, path: Path) -> int:
    """Return the length of the lists in a column."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return column.type.list_size
    lengths = column.value_lengths().unique().to_pylist()
    if len(lengths) > 1:
        raise DataError(
            f"the column {name!r} has lists of different lengths",
            where=path,
            found=" and ".join(map(str, sorted(lengths)[:2])),
            expected="one length in all rows",
            remedy="pad them, or leave the column out",
        )
    return lengths[0] if lengths else 0


def _check_numbers(kind: Any, name: str, path: Path) -> None:
    import pyarrow as pa

    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(
            f"the column {name!r} holds no numbers of one shape",
            where=path,
            found=kind,
            expected="numbers, lists of one length, or fixed-shape tensors",
            remedy="leave the column out, or store numbers",
        )


def _check_whole(column: Any, name: str, path: Path) -> None:
    if column.null_count:
        raise DataError(
            f"the column {name!r} has rows without a value",
            where=path,
            found=f"{column.null_count} nulls",
            remedy="fill them, or leave these rows out",
        )
