"""A folder with one .npy file for each input, mapped into memory: read as batches need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.trainer.data.data_set import DataSet


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
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError) as error:
        raise DataError(
            "the array cannot be read",
            where=path,
            found=error,
            expected="a .npy file of numbers, as numpy.save writes it",
        ) from error
    if not isinstance(found, np.ndarray):
        raise DataError(
            "several arrays in one file",
            where=path,
            expected="a .npy file for each input",
            remedy="give the .npz file instead of the folder",
        )
    return found
