"""Tensors are read in chunks, measured in one pass, and rounded as IEEE 754 asks."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.graph.tensors import CHUNK, ConvertedTensor, byte_chunks, chunks, weight_stats


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    ties = np.array(
        [2049, 2051, 65519.996, 65520, -65520, 2**-25, 2**-24 * 1.5, -(2**-25)], np.float32
    )
    return np.concatenate(
        [
            bits.view(np.float32),
            rng.standard_normal(70_001).astype(np.float32),
            (rng.standard_normal(1000) * 1e-6).astype(np.float32),
            ties,
            np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32),
        ]
    )


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_conversion_rounds_every_bit_like_the_reference(dtype):
    values = samples()
    found = ConvertedTensor(ir.Tensor(values, name="v"), dtype)
    with np.errstate(all="ignore"):
        expected = values.astype(dtype.numpy)
    assert found.dtype == dtype.ir
    np.testing.assert_array_equal(found.numpy().view(np.uint16), expected.view(np.uint16))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_saturation_clamps_finite_values_only(dtype):
    values = np.array([3.4e38, -3.4e38, 1.0, np.inf, -np.inf, np.nan], np.float32)
    found = ConvertedTensor(ir.Tensor(values), dtype, saturate=dtype.max).numpy().astype(np.float32)
    np.testing.assert_array_equal(
        found, np.array([dtype.max, -dtype.max, 1.0, np.inf, -np.inf, np.nan], np.float32)
    )


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_statistics_count_what_conversion_does(dtype):
    values = samples()
    stats = weight_stats(ir.Tensor(values), chunk_elements=10_007)
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
        stats = weight_stats(ir.Tensor(array))
        assert (stats.max_abs, stats.smallest_nonzero_abs, stats.nans) == (0.0, None, 0)


def test_any_tensor_is_read_in_chunks(tmp_path):
    (tmp_path / "w").write_bytes(np.full(10, 3, np.float32).tobytes())
    big = ir.ExternalTensor(
        "w", 0, 40, ir.DataType.FLOAT, shape=ir.Shape([10]), name="big", base_dir=tmp_path
    )
    small = ir.tensor(np.array([1, 2, 3, 4], np.float32))
    assert [chunk.size for chunk in chunks(big, 4)] == [4, 4, 2]
    assert [chunk.size for chunk in chunks(ConvertedTensor(big, FLOAT16), 4)] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(list(chunks(small, 3))), [1, 2, 3, 4])
    assert b"".join(byte_chunks(big, 3)) == np.full(10, 3, np.float32).tobytes()
    assert big.raw is None, "reading in chunks must not map the file"


def test_packed_tensors_are_stored_packed():
    packed: Any = np.array([1, -2, 3], ml_dtypes.int4)
    four = ir.Tensor(packed, name="four")
    assert len(b"".join(byte_chunks(four))) == 2
    np.testing.assert_array_equal(next(chunks(four)).astype(int), [1, -2, 3])


def test_a_chunk_holds_a_few_mebibytes():
    assert CHUNK * 4 <= 1 << 24
