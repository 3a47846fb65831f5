"""All painting passes: each file of the folder `passes` has one, which is named like the file."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from amp_rewrite.rewriting.paint import passes
from amp_rewrite.rewriting.paint.paint_pass import PaintPass


def _pass(name: str) -> PaintPass:
    return getattr(import_module(f"{passes.__name__}.{name}"), name)


PASSES: tuple[PaintPass, ...] = tuple(_pass(found.name) for found in iter_modules(passes.__path__))
"""The passes by name; `pipeline.py` puts them in order."""
