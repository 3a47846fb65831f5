"""Write a report as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from amp_rewrite.graph.io.atomic import Replacement, writing


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
    with writing("file", path), Replacement(str(path.parent), path.name) as replacement:
        replacement.file.write(content)
        replacement.commit(path.name)
