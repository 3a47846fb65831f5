"""Names that an earlier state had -> what to use now. A row stays for one release."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "measure-costs": "op lists and --deny-op choose the types; `amp-rewrite run` times a file",
}
"""Command -> the remedy."""

FLAGS: Mapping[str, str] = {
    "--costs": "op lists and --deny-op choose the types",
    "--measure": "time the files with `amp-rewrite run`",
    "--prefer": "for a smaller file use --store half, for a smaller error --data FILE --rtol X",
    "--save-costs": "op lists and --deny-op choose the types",
    "--write-slower": "every file that passes is written; `amp-rewrite run` times it",
}
"""Option of a command -> the remedy."""

ARGUMENTS: Mapping[str, str] = {
    "costs": "op lists and deny_ops choose the types",
    "measure": "time the files with `amp-rewrite run`",
    "prefer": "for a smaller file use store='half', for a smaller error data and rtol",
}
"""Keyword argument of a rewrite in Python -> the remedy."""

NAMES: Mapping[str, str] = {}
"""Public name of `amp_rewrite` -> the remedy."""
