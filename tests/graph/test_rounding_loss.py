"""What rounding loses is what numpy's own rounding shows, on one core and on all."""

import numpy as np
import pytest
from floats import samples

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.graph.rounding_loss import RoundingLoss, rounding_loss
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
