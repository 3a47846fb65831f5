"""Write a report as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.atomic import Replacement


def write_text(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` and a final newline, atomically.

    Raises:
        SaveError: The file cannot be written.
    """
    write_bytes(path, f"{text}\n".encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file at `path`, atomically.

    Raises:
        SaveError: The file cannot be written.
    """
    try:
        with Replacement(str(path.parent), path.name) as replacement:
            replacement.file.write(content)
            replacement.commit(path.name)
    except OSError as error:
        raise SaveError(
            "the file cannot be written",
            where=path,
            found=error.strerror or error,
            remedy="choose a writable folder with enough room",
        ) from error
