"""Arrays on the host and OrtValues on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.ort.device import Device

Array = np.ndarray[Any, Any]


def to_ort_value(tensor: Any, device: Device, ort_value: Any) -> Any:
    """Return an OrtValue with the content of `tensor`.

    Args:
        tensor: An OrtValue, which is returned as it is, or an array, which is not copied if the
            device is the host.
        device: Where the OrtValue shall be.
        ort_value: The class onnxruntime.OrtValue.
    """
    if isinstance(tensor, ort_value):
        return tensor
    array = np.asarray(tensor, order="C")
    if array.dtype.isbuiltin == 1:
        return ort_value.ortvalue_from_numpy(array, device.kind, device.index)
    number = ir.DataType.from_numpy(array.dtype).value  # numpy does not know bfloat16
    on_host = ort_value.ortvalue_from_numpy_with_onnx_type(array, number)
    if device.is_host:
        return on_host
    value = empty(array.shape, ir.DataType(number), device, ort_value)
    value.update_inplace(on_host)
    return value


def empty(shape: tuple[int, ...], dtype: ir.DataType, device: Device, ort_value: Any) -> Any:
    """Return an OrtValue on `device` with undefined content."""
    return ort_value.ortvalue_from_shape_and_type(
        list(shape), dtype.value, device.kind, device.index
    )


def to_array(value: Any, dtype: ir.DataType) -> Array:
    """Return a copy of an OrtValue on the host.

    Args:
        value: An OrtValue.
        dtype: Its element type; numpy sees those that it does not know as integers.
    """
    array = np.array(value.numpy())
    expected = dtype.numpy()
    return array if array.dtype == expected else array.view(expected)
