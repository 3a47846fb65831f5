"""Memory that was freed, and that the process holds nevertheless."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Let the C library give the memory that it holds free back to the operating system.

    glibc keeps what threads have freed in a heap of each thread. It takes a tenth of a second for a
    gigabyte; other C libraries are left alone.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # no glibc
        return
    trim(0)
