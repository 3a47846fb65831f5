"""Arrays as OpenVINO's tensors, which share their memory, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.runtimes.openvino.package import import_runtime

Array = np.ndarray[Any, Any]

_FOREIGN = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
"""Types that numpy has from ml_dtypes, and what openvino.Type calls them."""


def to_tensor(value: Any, *, shared: bool = False) -> tuple[Any, Array]:
    """Return an openvino.Tensor with the content of an array, and the array whose memory it has.

    The tensor does not keep that: whoever uses it must, as long as a request may read it.

    Args:
        value: An array, or what numpy makes one of; never changed unless `shared`.
        shared: Whether the array's memory must be the tensor's. It must then be contiguous and
            writable. Otherwise it is shared where that is possible, since reading is all that
            is done to it.

    Raises:
        ValueError: The memory cannot be shared, or the elements are texts: with 2026.4.1 a model
            that has x and Identity(x) of texts aborts.
        RuntimeError: OpenVINO has no such element type.
    """
    runtime, array = import_runtime(), np.asarray(value)
    if not (array.flags.c_contiguous and array.flags.writeable):
        if shared:
            raise ValueError("an array whose memory is shared must be contiguous and writable")
        array = np.array(array, order="C")
    if array.dtype.kind in "OSU":
        raise ValueError("texts, with which OpenVINO may end the process")
    foreign = _FOREIGN.get(array.dtype.name)
    if foreign is None:
        return runtime.Tensor(array, shared_memory=True), array
    raw = array.view(f"u{array.dtype.itemsize}")
    return runtime.Tensor(raw, list(array.shape), getattr(runtime.Type, foreign)), raw


def to_array(tensor: Any, dtype: np.dtype[Any] | None = None) -> Array:
    """Return a copy of an openvino.Tensor; `dtype` is given where numpy has it from ml_dtypes."""
    content = tensor.data
    if dtype is not None and dtype.name in _FOREIGN:
        content = content.view(dtype)
    return np.array(content)
