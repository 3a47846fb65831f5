"""Write a report as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.atomic import Replacement, writing
from amp_rewrite.oplists.environment import with_tensorflow

if TYPE_CHECKING:
    from amp_rewrite.rewriting.report.rewrite_report import Report

_VARIABLE = "AMP_REWRITE_LOG_PATH"


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


def log_folder() -> Path | None:
    """Return the folder that reports of rewrites are written into, or None."""
    folder = with_tensorflow(os.environ).get(_VARIABLE, "").strip()
    return Path(folder) if folder else None


def write_report(report: Report, folder: Path) -> None:
    """Write a report as text and JSON: `rewrite_<process>_<number>.txt` and `.json`.

    Raises:
        OptionError: The folder cannot be made or written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            name = folder / f"rewrite_{os.getpid()}_{number}"
            try:
                with name.with_suffix(".json").open("x", encoding="utf-8") as stream:
                    stream.write(report.to_json())
                break
            except FileExistsError:
                number += 1
        name.with_suffix(".txt").write_text(report.to_text() + "\n", encoding="utf-8")
    except OSError as error:
        raise OptionError(
            "the folder for reports cannot be written into",
            where=f"environment {_VARIABLE}",
            found=error,
            remedy="name another folder, or unset the variable",
        ) from error
