"""Setuptools, and the op lists parsed before: what pip calls to build this project.

A wheel brings the built-in lists as they are parsed (`oplists.compiled`), which takes PyYAML and
nothing else; an editable installation needs nothing of it, for a checkout keeps what it has parsed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Compile the lists of the source tree, then build the wheel; return its file name."""
    sys.path.insert(0, str(ROOT))
    try:
        from amp_rewrite.oplists.compiled import compile_lists
    finally:
        sys.path.remove(str(ROOT))
    compile_lists(ROOT / "lists")
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
