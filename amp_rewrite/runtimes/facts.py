"""What times are measured on: engine, device and driver, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amp_rewrite.base.processor import instructions, onednn_instructions, processor_name
from amp_rewrite.runtimes.openvino.package import runtime_in_words
from amp_rewrite.runtimes.ort.cuda_driver import cuda_device
from amp_rewrite.runtimes.ort.device import device_of
from amp_rewrite.runtimes.ort.plugins import devices_of, is_plugin
from amp_rewrite.runtimes.ort.runtime import version_in_words
from amp_rewrite.targets import OPENVINO


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
        return EngineFacts(runtime_in_words(), _processor(onednn_instructions()))
    runtime = version_in_words()
    if is_plugin(provider):
        return EngineFacts(runtime, *_plugin(provider))
    if device_of([provider]).kind == "cuda":
        gpu = cuda_device()
        if gpu is not None:
            device = f"{gpu.name}, compute capability {gpu.capability:g}"
            return EngineFacts(runtime, device, f"CUDA {gpu.driver}")
    return EngineFacts(runtime, _processor(instructions()))


def _processor(has: Iterable[str]) -> str:
    """Return the processor in words, with instructions that it has for 16-bit types."""
    return ", ".join((processor_name(), *has))


def _plugin(provider: str) -> tuple[str, str]:
    """Return the device of a provider that is a package of its own, and its driver, in words."""
    device = devices_of(provider)[0]
    hardware = device.device
    told = dict(hardware.metadata)
    name = told.get("Description") or told.get("description") or hardware.vendor
    words = f"{str(hardware.type).rpartition('.')[2]} {name or 'without a name'}".strip()
    version = dict(device.ep_metadata).get("version", "")
    return words, f"{device.ep_vendor} {version}".strip()
