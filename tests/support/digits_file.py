"""The file of scikit-learn's digits: to import scikit-learn takes 2 s and 100 MiB."""

import importlib.util
from pathlib import Path

import numpy as np

from amp_rewrite.training.data.as_examples import DataSet


def all_digits() -> DataSet:
    """Return all digits, in the order of the file.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("scikit-learn is not installed")
    rows = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    images = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return DataSet({"x": images, "t": rows[:, -1].astype(np.int64)})


def keep_few(path: Path, count: int) -> None:
    """Leave the first examples of a file alone."""
    with np.load(path) as data:
        arrays = {name: data[name][:count] for name in data.files}
    np.savez(path, **arrays)
