"""The processor of this machine, and the faults by which processes end."""

from __future__ import annotations

import platform
import signal

_WINDOWS_FAULT = 0xC0000000
"""From here on the exit status of a process on Windows is a fault."""


def is_arm() -> bool:
    """Return whether this machine has an Arm processor."""
    return platform.machine().lower() in ("arm64", "aarch64")


def fault_of(status: int) -> str | None:
    """Return the fault that ended a process, by its exit status; None if it was none of its own."""
    if status >= _WINDOWS_FAULT:
        return f"status {status:#x}"
    faults = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP")
    name = next((n for n in faults if getattr(signal, n, None) == -status), None)
    return "a segmentation fault (SIGSEGV)" if name == "SIGSEGV" else name
