"""Which variables decay."""

from __future__ import annotations

import re
from collections.abc import Iterable

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError


def patterns(name: str, expressions: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions for variable names, checked.

    Args:
        name: What they are called.
        expressions: What was given.

    Raises:
        OptimizerTypeError: A single string was given.
        OptimizerValueError: One is not a regular expression.
    """
    if isinstance(expressions, str):
        raise OptimizerTypeError(
            f"{name} must be a list of regular expressions",
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


def decays(variable: str, weight_decay: float, exclude: Iterable[str]) -> bool:
    """Return whether a variable decays: no expression of `exclude` occurs in its name."""
    return bool(weight_decay) and not any(re.search(pattern, variable) for pattern in exclude)
