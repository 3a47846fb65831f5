"""Tensors are read in blocks, and rounded as IEEE 754 asks."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from floats import samples

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.graph.tensors import ConvertedTensor, stored


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


def bytes_of(tensor: ir.TensorProtocol) -> list[bytes]:
    return [block.tobytes() for block in stored(tensor).blocks()]


def test_any_tensor_is_read_in_blocks(tmp_path):
    (tmp_path / "w").write_bytes(np.full(10, 3, np.float32).tobytes())
    big = ir.ExternalTensor(
        "w", 0, 40, ir.DataType.FLOAT, shape=ir.Shape([10]), name="big", base_dir=tmp_path
    )
    small = ir.tensor(np.array([1, 2, 3, 4], np.float32))
    low = ConvertedTensor(big, FLOAT16)
    assert [chunk.size for chunk in stored(big).blocks(block=4)] == [4, 4, 2]
    assert [chunk.size for chunk in stored(low).blocks(block=4)] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(list(stored(small).blocks(block=3))), [1, 2, 3, 4])
    assert b"".join(bytes_of(big)) == np.full(10, 3, np.float32).tobytes()
    assert big.raw is None, "reading in blocks must not map the file"


def test_a_tensor_with_gaps_in_memory_is_stored_without_them():
    values = np.arange(20, dtype=np.float32)
    for array in (values[::2], values.reshape(4, 5).T):
        assert b"".join(bytes_of(ir.Tensor(array))) == array.tobytes()


def test_packed_tensors_are_stored_packed():
    packed: Any = np.array([1, -2, 3], ml_dtypes.int4)
    four = ir.Tensor(packed, name="four")
    assert b"".join(bytes_of(four)) == b"\xe1\x03"
