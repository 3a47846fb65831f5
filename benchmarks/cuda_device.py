"""What the CUDA driver says of a device."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device: compute capability (8.0), memory in bytes, version of the driver ("12.4")."""

    name: str
    capability: float
    memory: int
    driver: str


def cuda_device(index: int = 0, library: Any = None) -> CudaDevice | None:
    """Return a device by its number, as providers count them; None without it or a driver."""
    try:
        driver = ctypes.CDLL(_LIBRARY) if library is None else library
    except OSError:
        return None
    device, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return None
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    failed = (
        driver.cuDriverGetVersion(ctypes.byref(version)),
        driver.cuDeviceGetName(name, len(name), device),
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
        driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device),
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device),
    )
    if any(failed):
        return None
    return CudaDevice(
        name=name.value.decode("utf-8", "replace"),
        capability=major.value + minor.value / 10,
        memory=memory.value,
        driver=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )
