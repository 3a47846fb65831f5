"""Where state lives: the device of the preferred execution provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite.errors import OptionError

Provider = str | tuple[str, Mapping[str, Any]]
"""The name of an execution provider, or its name and options."""

CPU = "CPUExecutionProvider"

_DEVICES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "MIGraphXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
"""Providers whose memory is not the host's, and what OrtValue calls it."""


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
        OptionError: None is given, or one is not available.
    """
    if isinstance(providers, str) or not providers:
        raise OptionError(
            "providers must be a list of execution providers",
            found=repr(providers),
            remedy=f"pass providers=[{CPU!r}]",
        )
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
    return Device(_DEVICES.get(names[0], "cpu"), int(options.get("device_id", 0)))
