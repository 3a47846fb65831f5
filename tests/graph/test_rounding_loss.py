"""What rounding loses is what numpy's own rounding shows, on one core and on all."""

import numpy as np
import pytest
from floats import samples

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.graph import rounding_loss as rounding
from amp_rewrite.graph.rounding_loss import MOST_SMALL, RoundingLoss, rounding_loss
from amp_rewrite.graph.streams import Stream


def loss(values: np.ndarray, dtype: DType = FLOAT16) -> RoundingLoss:
    return rounding_loss(Stream(values.size, values.dtype, values), dtype)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_the_loss_is_that_of_numpys_rounding(dtype: DType) -> None:
    values = samples()
    found = loss(values, dtype)
    finite = values[np.isfinite(values) & (values != 0)]
    with np.errstate(all="ignore"):
        low = finite.astype(dtype.numpy).astype(np.float32)
    normal = np.isfinite(low) & (np.abs(finite) >= dtype.smallest_normal)
    errors = np.abs(low[normal] - finite[normal]) / np.abs(finite[normal])
    assert found == RoundingLoss(
        nonzero=finite.size,
        overflowed=int(np.isinf(low).sum()),
        small=int((np.abs(finite) < dtype.smallest_normal).sum()),
        largest_relative=float(errors.max()),
    )
    assert 0 < found.largest_relative <= dtype.epsilon / 2
    assert not found.is_kept


def test_ordinary_weights_are_kept() -> None:
    values = np.random.default_rng(0).normal(0, 0.02, 100_000).astype(np.float32)
    found = loss(values)
    assert found.small
    assert found.is_kept
    assert loss(np.append(values, np.float32(-np.inf))).is_kept
    assert not loss(np.append(values, np.float32(65520))).is_kept
    assert loss(np.append(values, np.float32(65519))).is_kept


def test_what_lies_among_the_subnormal_numbers_is_not_kept() -> None:
    values = np.random.default_rng(0).normal(0, 1e-4, 10_000).astype(np.float32)
    assert not loss(values).is_kept
    assert loss(values, BFLOAT16).is_kept


def test_as_many_small_elements_as_the_bound_says_are_kept() -> None:
    values = np.ones(1000, np.float32)
    values[: int(1000 * MOST_SMALL)] = 1e-6
    assert loss(values).is_kept
    values[-1] = 1e-6
    assert not loss(values).is_kept


def test_nothing_and_zeros_lose_nothing() -> None:
    for values in (np.zeros(0, np.float32), np.zeros(9, np.float32)):
        assert loss(values) == RoundingLoss()
        assert loss(values).is_kept


def test_the_parts_of_threads_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    values = samples()
    whole = loss(values)
    monkeypatch.setattr(rounding, "_SHARE", 1000)
    assert loss(values) == whole
