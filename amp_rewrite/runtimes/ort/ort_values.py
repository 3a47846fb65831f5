"""Arrays on the host and OrtValues on a device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph import elements
from amp_rewrite.runtimes.ort.device import HOST, Device
from amp_rewrite.runtimes.ort.runtime import import_runtime

Array = np.ndarray[Any, Any]


def is_ort_value(tensor: object) -> bool:
    """Return whether `tensor` is an onnxruntime.OrtValue."""
    return isinstance(tensor, import_runtime().OrtValue)


def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Return whether numpy itself has an element type: all but bfloat16 and narrower ones."""
    return dtype.kind != "V"


def to_ort_value(tensor: Any, device: Device) -> Any:
    """Return an OrtValue on a device; an array is not copied if that is the host."""
    if is_ort_value(tensor):
        return tensor
    ort_value = import_runtime().OrtValue
    array = np.asarray(tensor, order="C")
    if is_numpys(array.dtype):
        return ort_value.ortvalue_from_numpy(array, device.kind, device.index)
    number = ir.DataType.from_numpy(array.dtype).value  # numpy does not know bfloat16
    on_host = ort_value.ortvalue_from_numpy_with_onnx_type(array, number)
    if device.is_host:
        return on_host
    value = empty(array.shape, ir.DataType(number), device)
    value.update_inplace(on_host)
    return value


def from_dlpack(tensor: Any) -> Any:
    """Return an OrtValue that shares the memory of an object with `__dlpack__`."""
    return import_runtime().OrtValue.from_dlpack(tensor)


def empty(shape: tuple[int, ...], dtype: ir.DataType, device: Device) -> Any:
    """Return an OrtValue on `device` with undefined content."""
    return import_runtime().OrtValue.ortvalue_from_shape_and_type(
        list(shape), dtype.value, device.kind, device.index
    )


def zeros_on_host(kinds: Iterable[tuple[tuple[int, ...], ir.DataType]]) -> list[Any]:
    """Return OrtValues of zeros on the host; large ones take no memory until they are written."""
    return [to_ort_value(np.zeros(shape, dtype.numpy()), HOST) for shape, dtype in kinds]


def shared_array(value: Any) -> Array:
    """Return an array that shares the memory of an OrtValue on the host, and keeps it alive."""
    member = elements.element(value.data_type())
    assert member is not None, "a tensor has an element type"
    dtype, shape = ir.DataType(member).numpy(), value.shape()
    count = value.tensor_size_in_bytes()
    if not count:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * count).from_address(value.data_ptr())
    memory.owner = value
    return np.frombuffer(memory, np.dtype(dtype.str if is_numpys(dtype) else dtype)).reshape(shape)


def copy_of(value: Any) -> Array:
    """Return a copy of an OrtValue on the host, in numpy's type or that of ml_dtypes."""
    member = elements.element(value.data_type())
    assert member is not None, "a tensor has an element type"
    return to_array(value, ir.DataType(member))


def to_array(value: Any, dtype: ir.DataType) -> Array:
    """Return a copy of an OrtValue on the host."""
    numpy_type = dtype.numpy()
    if is_numpys(numpy_type):
        return np.array(value.numpy())
    host = value  # ONNX Runtime makes no array of what numpy does not know
    if value.device_name() != HOST.kind:
        host = empty(tuple(value.shape()), dtype, HOST)
        host.update_inplace(value)
    content = ctypes.string_at(host.data_ptr(), host.tensor_size_in_bytes())
    return np.frombuffer(content, numpy_type).reshape(host.shape()).copy()
