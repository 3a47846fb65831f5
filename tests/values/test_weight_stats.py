"""Weights are measured in one pass, on all cores."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from floats import samples

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values import weight_stats
from amp_rewrite.values.weight_stats import WeightStats, measure


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_statistics_count_what_conversion_does(dtype):
    values = samples()
    stats = measure(Stream(values.size, values.dtype, values))
    with np.errstate(all="ignore"):
        low = values.astype(dtype.numpy).astype(np.float32)
    finite = np.isfinite(values)
    assert stats.count == values.size
    assert stats.nans == np.isnan(values).sum()
    assert stats.nans
    assert stats.infs == np.isinf(values).sum()
    assert stats.infs
    assert stats.flushed_to_zero(dtype) == ((low == 0) & (values != 0)).sum()
    assert stats.overflow(dtype) == (np.isinf(low) & finite).sum()
    assert stats.max_abs == np.abs(values[finite]).max()
    nonzero = np.abs(values[finite & (values != 0)])
    assert stats.smallest_nonzero_abs == nonzero.min()


def test_statistics_of_nothing_and_of_zeros():
    arrays: tuple[Any, ...] = (np.zeros(0, np.float32), np.zeros(3, ml_dtypes.bfloat16))
    for array in arrays:
        stats = measure(Stream(array.size, array.dtype, array))
        assert (stats.max_abs, stats.smallest_nonzero_abs, stats.nans) == (0.0, None, 0)


def test_shares_of_a_long_stream_count_as_the_whole(monkeypatch):
    values = samples()
    whole = measure(Stream(values.size, values.dtype, values))
    monkeypatch.setattr(weight_stats, "_SHARE", 10_007)
    assert measure(Stream(values.size, values.dtype, values)) == whole


def test_measuring_leaves_the_weights_as_they_are():
    values = samples()
    before = values.tobytes()
    measure(Stream(values.size, values.dtype, values))
    assert values.tobytes() == before


def stream_of(*numbers: float, dtype: Any = np.float32) -> Stream:
    array = np.array(numbers, dtype)
    return Stream(array.size, array.dtype, array)


LIMITS = [
    (FLOAT16, "flushed", 2.0**-25, 1),
    (BFLOAT16, "flushed", 2.0**-134, 1),
    (FLOAT16, "overflowed", 65520.0, 0),
    (BFLOAT16, "overflowed", (2 - 2.0**-8) * 2.0**127, 0),
]
"""A type, what happens to a number, the last one to which it does, and where the next one is."""


@pytest.mark.parametrize(("dtype", "fact", "limit", "beyond"), LIMITS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_number_at_a_limit_is_counted_and_its_neighbour_is_not(
    dtype: Any, fact: str, limit: float, beyond: float, sign: int
) -> None:
    neighbour = float(np.nextafter(np.float32(limit), np.float32(beyond)))
    assert getattr(measure(stream_of(sign * limit)), fact)[dtype.name] == 1
    assert getattr(measure(stream_of(sign * neighbour)), fact)[dtype.name] == 0


def test_what_is_not_finite_is_counted_apart() -> None:
    stats = measure(stream_of(np.inf, -np.inf, np.nan, -3, 0))
    nothing = {"float16": 0, "bfloat16": 0}
    assert stats == WeightStats(5, 3.0, 3.0, 1, 2, nothing, nothing)
    stats = measure(stream_of(np.inf))
    assert stats == WeightStats(1, 0.0, None, 0, 1, nothing, nothing)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types_are_measured_as_float32(dtype: Any) -> None:
    assert measure(stream_of(0.5, -2, 0, dtype=dtype)) == measure(stream_of(0.5, -2, 0))
