"""The options of a rewrite as words of a command: what is suggested is what was done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from amp_rewrite.oplists import OpLists
from amp_rewrite.oplists.files import builtin_names
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, Declared, RewriteOptions

_SILENT = frozenset({"strict"})
"""Options that check a rewrite and change nothing in it."""


def option_words(options: RewriteOptions) -> tuple[tuple[str, ...], ...]:
    """Return the options that are not the default ones, each as its words on the command line.

    Of lists that were made in Python, the files are named that they were made of.

    Example:
        (("--precision", "bfloat16"), ("--deny-node", "head"), ("--no-move-casts",))
    """
    usual = RewriteOptions()
    return tuple(
        words
        for option in COMMAND_LINE
        if option.name not in _SILENT
        and getattr(options, option.name) != getattr(usual, option.name)
        for words in _words(option, getattr(options, option.name))
    )


def _words(option: Declared, value: Any) -> Iterator[tuple[str, ...]]:
    name = option.name.replace("_", "-")
    if isinstance(value, bool):
        yield (f"--{name}" if value else f"--no-{name}",)
    elif option.is_repeated:
        yield from ((option.flag, text) for text in _texts(value))
    else:
        yield option.flag, str(value)


def _texts(value: Any) -> Iterator[str]:
    """Yield what is repeated for an option that takes names, ranges or files."""
    if isinstance(value, Mapping):
        yield from (f"{name}={_number_or_range(said)}" for name, said in value.items())
    elif isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, OpLists):
        built_in = {f"lists/{name}.yaml": name for name in builtin_names()}
        if not built_in.keys() >= set(value.files):
            yield from (built_in.get(file, file) for file in value.files)
    else:
        yield from map(os.fspath, value)


def _number_or_range(said: int | tuple[float, float]) -> str:
    """Return a length, or the ends of a range, as the command line spells them."""
    if isinstance(said, int):
        return str(said)
    low, high = said
    return f"{low:.9g}:{high:.9g}"
