"""Where tensors live: the device of the preferred execution provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
