"""Examples from whatever users have: files, folders, arrays, loaders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.csv_tables import CSV, read_table
from amp_rewrite.training.data.arrow_files import IPC, PARQUET, read_arrow
from amp_rewrite.training.data.data_set import DataSet
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.data.image_folder import classes_of, read_images
from amp_rewrite.training.data.stream import Stream

_EXPECTED = (
    ".npz, .csv, .parquet, .arrow or .feather, or a folder of .npy files (one for each input), of "
    "Parquet files, or of folders of images"
)


def as_examples(given: Any, names: Sequence[str]) -> Examples:
    """Return examples.

    Args:
        given: A file or folder; a mapping from input names to arrays, the first axis over the
            examples; a tuple of arrays in the order of the inputs; an iterable of batches such as
            a torch DataLoader, or a function that returns one; a `datasets.Dataset`, of which
            other columns are left out; or examples.
        names: The inputs of the step.

    Raises:
        DataError: It is none of these, or cannot be read.
    """
    if isinstance(given, Examples):
        return given
    if isinstance(given, str | os.PathLike):
        return read_examples(given, names)
    if hasattr(given, "with_format") and hasattr(given, "iter"):  # a datasets.Dataset
        columns = given.with_format("numpy")[:]
        return DataSet(_arrays((name, columns[name]) for name in columns if name in names))
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
        expected="a file, a folder, arrays, or an iterable of batches",
    )


def read_examples(path: str | os.PathLike[str], names: Sequence[str]) -> Examples:
    """Return the examples of a file or folder."""
    location = Path(os.fsdecode(path))
    if location.is_dir():
        files = sorted(p for p in location.iterdir() if p.suffix in (*PARQUET, *IPC))
        if files:
            return read_arrow(files, location)
        return read_images(location, names) if classes_of(location) else read_npy_folder(location)
    if location.suffix in (*PARQUET, *IPC):
        return read_arrow([location], location)
    if location.suffix in CSV and location.is_file():
        return DataSet(read_table(location, names), location)
    if location.suffix == ".npz" or not location.exists():
        return DataSet.read(location)
    raise DataError(
        "unknown kind of data", where=location, found=location.suffix, expected=_EXPECTED
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


def read_npy_folder(folder: Path) -> DataSet:
    """Return the examples of a folder: `x.npy` holds those of the input "x", first axis first.

    No more of them is in memory than a batch; the system keeps in its cache what it has room for.

    Raises:
        DataError: There are none, a file cannot be read or holds objects, or lengths differ.
    """
    paths = sorted(folder.glob("*.npy"))
    return DataSet({path.stem: _mapped(path) for path in paths}, folder, mapped=True)


def _mapped(path: Path) -> np.ndarray[Any, Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError) as error:
        raise DataError(
            "the array cannot be read",
            where=path,
            found=error,
            expected="a .npy file of numbers, as numpy.save writes it",
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(
            "several arrays in one file",
            where=path,
            expected="a .npy file for each input",
            remedy="give the .npz file instead of the folder",
        )
    return array
