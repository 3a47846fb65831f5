"""Workflow commands of GitHub Actions, which shows them beside the file that they are about."""

from __future__ import annotations

from amp_rewrite.base.printable import printable


def annotation(severity: str, title: str, message: str, file: str, line: int | None = None) -> str:
    """Return one workflow command; `severity` is "error", "warning" or "notice".

    Source: GitHub, "Workflow commands for GitHub Actions", "Setting an error message".
    """
    place = f"file={_escape(file, ':,')}"
    if line is not None:
        place += f",line={line}"
    return f"::{severity} {place},title={_escape(title, ':,')}::{_escape(message)}"


def _escape(text: str, more: str = "") -> str:
    """Escape %, line ends, and `more`, as the commands ask."""
    escaped = "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)
    return printable(escaped)
