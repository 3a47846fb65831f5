"""The processor of this machine."""

from __future__ import annotations

import platform


def is_arm() -> bool:
    """Return whether this machine has an Arm processor."""
    return platform.machine().lower() in ("arm64", "aarch64")
