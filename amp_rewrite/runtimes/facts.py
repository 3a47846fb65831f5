"""What times are measured on: engine, device and driver, in words."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from amp_rewrite.runtimes.openvino.package import runtime_in_words
from amp_rewrite.runtimes.ort.cuda_driver import cuda_device
from amp_rewrite.runtimes.ort.device import device_of
from amp_rewrite.runtimes.ort.plugins import devices_of, is_plugin
from amp_rewrite.runtimes.ort.runtime import version_in_words
from amp_rewrite.targets import ARM64, OPENVINO

# what /proc/cpuinfo says of instructions for 16-bit types
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "bf16")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a provider runs on.

    Attributes:
        runtime: The engine with its version, for example "onnxruntime 1.32.0".
        device: The device, for example "NVIDIA H100, compute capability 9.0".
        driver: Its driver, for example "CUDA 12.4"; "" for a processor.
    """

    runtime: str
    device: str
    driver: str = ""


def facts_of(provider: str) -> EngineFacts:
    """Return what a provider, which was checked, runs on.

    Raises:
        AmpError: The engine is not installed, or has no device.
    """
    if provider == OPENVINO:
        return EngineFacts(runtime_in_words(), processor())
    runtime = version_in_words()
    if is_plugin(provider):
        return EngineFacts(runtime, *_plugin(provider))
    if provider != ARM64 and device_of([provider]).kind == "cuda":
        gpu = cuda_device()
        if gpu is not None:
            device = f"{gpu.name}, compute capability {gpu.capability:g}"
            return EngineFacts(runtime, device, f"CUDA {gpu.driver}")
    return EngineFacts(runtime, processor())


def processor() -> str:
    """Return the processor in words, with its instructions for 16-bit types."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    flags = (told.get("flags") or told.get("Features") or "").split()
    name = told.get("model name") or platform.processor() or platform.machine()
    return ", ".join((name, *(flag for flag in _INSTRUCTIONS if flag in flags)))


def _plugin(provider: str) -> tuple[str, str]:
    """Return the device of a provider that is a package of its own, and its driver, in words."""
    device = devices_of(provider)[0]
    hardware = device.device
    told = dict(hardware.metadata)
    name = told.get("Description") or told.get("description") or hardware.vendor
    words = f"{str(hardware.type).rpartition('.')[2]} {name or 'without a name'}".strip()
    version = dict(device.ep_metadata).get("version", "")
    return words, f"{device.ep_vendor} {version}".strip()
