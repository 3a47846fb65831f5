"""Arrays to OrtValues and back."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.ort.ort_values import (
    from_dlpack,
    is_ort_value,
    to_array,
    to_ort_value,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_an_array_comes_back_as_it_was(dtype: type):
    array = np.array([[0, 1, 2]]).astype(dtype)
    value = to_ort_value(array, HOST)
    assert is_ort_value(value)
    assert not is_ort_value(array)
    assert to_ort_value(value, HOST) is value
    back = to_array(value, ir.DataType.from_numpy(array.dtype))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_memory_is_shared_through_dlpack():
    array = np.zeros(2, np.float32)
    value = from_dlpack(array)
    array[1] = 3
    np.testing.assert_array_equal(value.numpy(), [0, 3])
