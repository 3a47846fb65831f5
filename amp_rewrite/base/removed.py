"""Names that an earlier state had -> what to use now. A row stays for one release."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "check-models": "check takes several files, and --format and --summary",
    "kernels": "tools/make_kernel_table.py of the repository writes the table",
    "report": "convert MODEL --dry-run --html PAGE writes the page",
}
"""Command -> the remedy."""

FLAGS: Mapping[str, str] = {
    "--explain-casts": "--report FILE.json has every cast, with its bytes",
}
"""Option of a command -> the remedy."""

ARGUMENTS: Mapping[str, str] = {}
"""Keyword argument of a rewrite in Python -> the remedy."""

NAMES: Mapping[str, str] = {}
"""Public name of `amp_rewrite` -> the remedy."""
