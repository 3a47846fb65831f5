"""Where tensors live: the device of the preferred execution provider."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.ort.providers import check_providers
from amp_rewrite.runtimes.ort.runtime import import_runtime
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import of_provider

_DEVICES = {
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "MIGraphXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
"""Providers without a target whose memory is not the host's, and what OrtValue calls it."""

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


@dataclass(frozen=True)
class Device:
    """A place for tensors.

    Attributes:
        kind: "cpu", "cuda" or "dml".
        index: Which one of them.
    """

    kind: str = "cpu"
    index: int = 0

    @property
    def is_host(self) -> bool:
        """Whether tensors lie in the memory of the host."""
        return self.kind == "cpu"


HOST = Device()


def device_of(providers: Sequence[Provider]) -> Device:
    """Return the device of the first provider, after checking that all are available."""
    check_providers(providers)
    name, options = name_and_options(providers[0])
    target = of_provider(name)
    kind = _DEVICES.get(name, HOST.kind) if target is None else target.device
    number = str(options.get("device_id", 0))  # ONNX Runtime takes it as text too
    if not (number.isascii() and number.isdigit()):
        raise OptionError(
            "impossible device_id",
            found=repr(options["device_id"]),
            expected="an integer of at least 0",
            remedy="pass the number of the device",
        )
    return Device(kind, int(number))


def load_libraries(device: Device) -> None:
    """Let ONNX Runtime find CUDA and cuDNN where pip has put them, of PyTorch's or their own."""
    if device.kind == "cuda":
        import_runtime().preload_dlls()


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
