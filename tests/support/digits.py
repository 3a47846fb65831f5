"""scikit-learn's digits, for tests that train."""

import functools
from typing import Any

import numpy as np
import pytest

from amp_rewrite.trainer.data.data_set import DataSet


@functools.cache
def digits() -> tuple[DataSet, DataSet]:
    """Return the training part of scikit-learn's digits, and a fixed fifth that is held out."""
    datasets: Any = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    x = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(x))
    held, rest = np.split(order, [len(x) // 5])
    t = labels.astype(np.int64)
    return DataSet({"x": x[rest], "t": t[rest]}), DataSet({"x": x[held], "t": t[held]})
