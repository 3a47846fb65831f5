"""Where state lives: the device of the preferred execution provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite.dtypes import LOW
from amp_rewrite.errors import OptionError
from amp_rewrite.global_state import global_state
from amp_rewrite.ort.cuda_driver import cuda_device
from amp_rewrite.targets import CPU, CUDA, of_provider

Provider = str | tuple[str, Mapping[str, Any]]
"""The name of an execution provider, or its name and options."""

_DEVICES = {
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "MIGraphXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
"""Providers without a target whose memory is not the host's, and what OrtValue calls it."""

_PAYS = 7.0
"""The compute capability of CUDA devices from which on float16 pays: they have tensor cores."""


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


def device_of(providers: Sequence[Provider], available: Sequence[str]) -> Device:
    """Return the device of the first provider.

    Args:
        providers: Execution providers, the preferred one first.
        available: Those that the installed runtime has.

    Raises:
        OptionError: None is given, or one is none or is not available.
    """
    if isinstance(providers, str) or not isinstance(providers, Sequence) or not providers:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "providers must be a list of execution providers",
            found=repr(providers),
            remedy=f"pass providers=[{CPU!r}]",
        )
    for provider in providers:
        _check_provider(provider)
    names = [p if isinstance(p, str) else p[0] for p in providers]
    for name in names:
        if name not in available:
            raise OptionError(
                "the installed ONNX Runtime has no such execution provider",
                found=repr(name),
                expected=" or ".join(available),
                remedy="install the wheel that has it, for example amp-rewrite[gpu]",
            )
    first = providers[0]
    options = {} if isinstance(first, str) else first[1]
    target = of_provider(names[0])
    kind = _DEVICES.get(names[0], "cpu") if target is None else target.device
    return Device(kind, _index(options.get("device_id", 0)))


def _check_provider(given: object) -> None:
    """Refuse what is neither a name nor a name and options.

    Raises:
        OptionError: It is neither.
    """
    if isinstance(given, str):
        return
    kinds = str, Mapping
    pair: tuple[object, ...] = given if isinstance(given, tuple) else ()
    if len(pair) != len(kinds) or not all(map(isinstance, pair, kinds)):
        raise OptionError(
            "a provider must be a name, or a tuple of a name and options",
            found=repr(given),
            remedy=f"pass {CPU!r}, or ({CUDA!r}, {{'device_id': 0}})",
        )


def _index(given: Any) -> int:
    """Return the number of a device, which ONNX Runtime takes as text too.

    Raises:
        OptionError: It is no number of one.
    """
    text = str(given)
    if not (text.isascii() and text.isdigit()):
        raise OptionError(
            "impossible device_id",
            found=repr(given),
            expected="an integer of at least 0",
            remedy="pass the number of the device",
        )
    return int(text)


def load_libraries(runtime: Any, device: Device) -> None:
    """Let ONNX Runtime find CUDA and cuDNN where pip has put them, of PyTorch's or their own.

    Args:
        runtime: The onnxruntime module; before 1.21 it cannot.
        device: Nothing is done for other devices than CUDA ones.
    """
    if device.kind == "cuda" and hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()


def reason_against(precision: str, device: Device, capability: float | None = None) -> str | None:
    """Return why a step in low precision does not pay on a device; None if nothing is known.

    Args:
        precision: "float32", "float16" or "bfloat16".
        device: Where it runs.
        capability: The compute capability of a CUDA device, or None if it is not known.
    """
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


def warn_if_slow(precision: str, device: Device, capability: float | None = None) -> None:
    """Warn, once per process, if a step in low precision does not pay on a device.

    Args:
        precision: See `reason_against`.
        device: See `reason_against`.
        capability: See `reason_against`; None asks the CUDA driver.
    """
    if capability is None and device.kind == "cuda" and precision in LOW:
        found = cuda_device(device.index)
        capability = None if found is None else found.capability
    reason = reason_against(precision, device, capability)
    if reason is not None:
        advice = f"it pays on CUDA devices of compute capability {_PAYS} or more"
        global_state.warn_once("slow-device", f"{reason}; {advice}. The step runs as asked for.")
