"""Processes on a pseudo-terminal, which Windows lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Ended(NamedTuple):
    """How a process ended."""

    status: int
    out: str  # written to standard output, if that was not the terminal
    drawn: str  # written to the terminal


def run_on_a_terminal(
    arguments: Sequence[str], *, out_is_terminal: bool = False, **settings: str
) -> Ended:
    """Run Python with a terminal as standard error; `settings` are environment variables."""
    master, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", *arguments],
        stdout=terminal if out_is_terminal else subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, **settings},
    )
    os.close(terminal)
    drawn = bytearray()
    with open(master, "rb", buffering=0) as file:
        try:
            while data := file.read(1 << 16):
                drawn += data
        except OSError:  # Linux says so when the last writer has closed a terminal
            pass
    out, _ = process.communicate()
    return Ended(process.returncode, (out or b"").decode(), drawn.decode())
