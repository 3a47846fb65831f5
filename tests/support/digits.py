"""scikit-learn's digits, for tests that train."""

import functools

import numpy as np
import pytest
from digits_file import all_digits

from amp_rewrite.training.data.as_examples import DataSet


@functools.cache
def digits() -> tuple[DataSet, DataSet]:
    """Return the training part of scikit-learn's digits, and a fixed fifth that is held out."""
    try:
        arrays = all_digits().arrays
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    x, t = arrays["x"], arrays["t"]
    order = np.random.default_rng(0).permutation(len(x))
    held, rest = np.split(order, [len(x) // 5])
    return DataSet({"x": x[rest], "t": t[rest]}), DataSet({"x": x[held], "t": t[held]})
