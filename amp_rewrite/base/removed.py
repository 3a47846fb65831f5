"""Names that an earlier state had -> what to use now. A row stays for one release."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {}
"""Command -> the remedy."""

FLAGS: Mapping[str, str] = {
    "--arm64-folder": "verify --target cpu-arm64 emulates the arithmetic of Arm processors",
}
"""Option of a command -> the remedy."""

ARGUMENTS: Mapping[str, str] = {}
"""Keyword argument of a rewrite in Python -> the remedy."""

NAMES: Mapping[str, str] = {}
"""Public name of `amp_rewrite` -> the remedy."""
