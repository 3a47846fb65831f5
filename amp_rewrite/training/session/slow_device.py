"""Devices on which low precision does not pay."""

from __future__ import annotations

from amp_rewrite.dtypes import LOW
from amp_rewrite.runtimes.ort.cuda_driver import cuda_device
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.training.global_state import global_state

_PAYS = 7.0
"""The compute capability of CUDA devices from which on float16 pays: they have tensor cores."""


def reason_against(precision: str, device: Device, capability: float | None = None) -> str | None:
    """Return why a step in low precision does not pay on a device; None if nothing is known."""
    if precision not in LOW:
        return None
    if device.is_host:
        return (
            f"{precision} on a CPU is slower than float32: ONNX Runtime has few {precision} "
            "kernels there, and converts to float32 and back around the other ones"
        )
    if device.kind == "cuda" and capability is not None and capability < _PAYS:
        return (
            f"{precision} does not pay on this device: its compute capability is {capability:.1f}, "
            f"and devices below {_PAYS} have no tensor cores"
        )
    return None


def warn_if_slow(precision: str, device: Device) -> None:
    """Warn, once per process, of a `reason_against`; the CUDA driver tells the capability."""
    capability = None
    if device.kind == "cuda" and precision in LOW:
        found = cuda_device(device.index)
        capability = None if found is None else found.capability
    reason = reason_against(precision, device, capability)
    if reason is not None:
        advice = f"it pays on CUDA devices of compute capability {_PAYS} or more"
        global_state.warn_once("slow-device", f"{reason}; {advice}. The step runs as asked for.")
