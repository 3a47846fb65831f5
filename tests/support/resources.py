"""What this process holds, as Linux counts it, and what the processor can."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from processor import onednn_instructions


@dataclass(frozen=True)
class Held:
    """Threads, open files, and bytes of memory of its own."""

    threads: int
    files: int
    memory: int


def held() -> Held:
    """Return what the process holds after its garbage is collected."""
    gc.collect()
    tasks, files = Path("/proc/self/task"), Path("/proc/self/fd")
    return Held(len(list(tasks.iterdir())), len(list(files.iterdir())), memory())


def memory() -> int:
    """Return the bytes of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Collect garbage, and return the memory that is free to the system.

    glibc keeps what it freed between two pieces that are used: of models that were loaded and left,
    as much as they took.
    """
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def peak_memory() -> int:
    """Return the bytes of memory that the process ever held."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def has_amx() -> bool:
    """Return whether the processor multiplies tiles of bfloat16."""
    return "amx_bf16" in onednn_instructions()
