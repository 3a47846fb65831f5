"""Examples from whatever users have: files, arrays, loaders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.csv_tables import CSV, read_table
from amp_rewrite.training.data.data_set import DataSet
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.data.stream import Stream


def as_examples(given: Any, names: Sequence[str]) -> Examples:
    """Return examples.

    Args:
        given: An .npz or .csv file; a mapping from input names to arrays, the first axis over the
            examples; a tuple of arrays in the order of the inputs; an iterable of batches such as
            a torch DataLoader, or a function that returns one; or examples.
        names: The inputs of the step.

    Raises:
        DataError: It is none of these, or cannot be read.
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
