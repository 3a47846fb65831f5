"""The functions of a loaded module that a changed source changes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType


def compiled(source: str, path: str) -> CodeType:
    """Return a module's code; what a change makes odd, as `x is 1`, is no error."""
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        return compile(source, path, "exec", dont_inherit=True)


def changed_code(old: str, new: str, path: str) -> dict[CodeType, CodeType] | None:
    """Return what functions of a module run instead, or None if its import differs itself.

    Args:
        old: The source.
        new: The changed source.
        path: The file.
    """
    pairs: dict[CodeType, CodeType] = {}
    before, after = (compiled(text, path) for text in (old, new))
    return pairs if _compare(before, after, True, pairs) else None


def _compare(old: CodeType, new: CodeType, imports: bool, pairs: dict[CodeType, CodeType]) -> bool:
    """Add the pairs of functions that differ; return whether these are all that differs."""
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
    if [c.co_qualname for c in inner[0]] != [c.co_qualname for c in inner[1]]:
        return False
    if old.co_freevars != new.co_freevars or (imports and _bare(old) != _bare(new)):
        return False
    if not imports and old != new:
        pairs[old] = new
    return all(
        _compare(a, b, imports and (not a.co_flags & CO_OPTIMIZED or _is_comprehension(a)), pairs)
        for a, b in zip(*inner, strict=True)
    )


def _is_comprehension(code: CodeType) -> bool:
    return code.co_name.startswith("<") and code.co_name != "<lambda>"


def _bare(code: CodeType) -> CodeType:
    """Return code without the functions in it and without positions, which end where those end."""
    constants = tuple(None if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_consts=constants, co_linetable=b"")


def put_into(functions: Iterable[FunctionType], changes: dict[CodeType, CodeType]) -> None:
    """Put changed code into loaded functions."""
    for function in functions:
        if (code := changes.get(function.__code__)) is not None:
            function.__code__ = code
