"""Standard output that is full or closed: one line."""

from __future__ import annotations

import errno
import os
import sys

from amp_rewrite.errors import SaveError

_REMEDY = "write to a file, or to a pipe that something reads"


_REASONS = frozenset({errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EPIPE})


def check_standard_output(error: OSError | None = None) -> None:
    """Write out what waits for standard output.

    Args:
        error: What the command ended with, if it may have come from there. Errors of files name
            the file.

    Raises:
        SaveError: It cannot be written; what waits is given up, so that the process ends quietly.
    """
    if sys.stdout is None or sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison] it is None if the process began without one
        return
    try:
        if error is not None and error.filename is None and error.errno in _REASONS:
            raise error
        sys.stdout.flush()
    except OSError as problem:
        _give_up()
        raise SaveError(
            "standard output cannot be written", found=problem.strerror or problem, remedy=_REMEDY
        ) from problem


def _give_up() -> None:
    """Let what still waits go nowhere: Python writes it once more when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
