"""Which variables decay."""

from __future__ import annotations

import re
from collections.abc import Iterable

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError


def patterns(expressions: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions for variable names, checked.

    Raises:
        OptimizerTypeError: A single string was given.
        OptimizerValueError: One is no regular expression.
    """
    if isinstance(expressions, str):
        raise OptimizerTypeError(
            "exclude_from_weight_decay must be a list of regular expressions",
            found=repr(expressions),
        )
    given = tuple(expressions)
    for expression in given:
        try:
            re.compile(expression)
        except re.error as error:
            raise OptimizerValueError(
                "not a regular expression", where=repr(expression), found=error
            ) from error
    return given


def excluded(name: str, expressions: Iterable[str]) -> bool:
    """Return whether any expression occurs in a variable's name."""
    return any(re.search(expression, name) for expression in expressions)
