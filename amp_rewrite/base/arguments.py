"""Checks of what users pass: numbers, switches, names and functions."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from amp_rewrite.errors import AmpError, DataError, OptionError

Raised = Callable[..., AmpError]
"""Makes the error about an argument: a class, or one with some of its facts."""


def number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: bool = False,
    expected: str,
    error: Raised = OptionError,
) -> float:
    """Return an argument as a float from `low` (which `above` excludes) to `high`; no NaN.

    `expected` is the same in words; `error` is raised otherwise, as by the other functions.
    """
    real = _real(value)
    if real is None or not (real > low if above else real >= low) or real > high:
        raise error(f"impossible {name}", found=_argument_text(value), expected=expected)
    return real


def integer(
    name: str,
    value: object,
    *,
    low: int = 0,
    high: int = 2**63 - 1,
    error: Raised = OptionError,
) -> int:
    """Return an argument as an int from `low` to `high`."""
    whole = whole_number(value)
    if whole is None:
        raise error(f"{name} must be an integer", found=_argument_text(value))
    if not low <= whole <= high:
        bound = f"at least {low}" if whole < low else f"at most {high}"
        raise error(f"impossible {name}", found=_argument_text(value), expected=bound)
    return whole


def whole_number(value: object) -> int | None:
    """Return an integer of any kind but a bool as an int, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def threads(value: object) -> int:
    """Return a number of threads as an int; 0 leaves the choice to others."""
    return integer("number of threads", value, high=2**31 - 1)  # the largest for ONNX Runtime


def switch(name: str, value: object, *, error: Raised = OptionError) -> bool:
    """Return an argument that is True or False, or 1 or 0."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise error(f"{name} must be True or False", found=_argument_text(value))


def text(name: str, value: object, *, what: str) -> str:
    """Return an argument that is a string."""
    if not isinstance(value, str):
        raise OptionError(
            f"{name} must be {what}", found=_argument_text(value), expected="a string"
        )
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    """Return an argument that holds strings, as a tuple; a bare string is a user's slip."""
    if isinstance(value, str):
        raise OptionError(
            f"{name} must be a list", found=repr(value), remedy=f"pass {name}=[{value!r}]"
        )
    items = tuple(cast("Iterable[object]", value)) if isinstance(value, Iterable) else None
    if items is None or not all(isinstance(item, str) for item in items):
        raise OptionError(f"{name} must be a list of strings", found=_argument_text(value))
    return cast("tuple[str, ...]", items)


def paths(name: str, value: object) -> list[str | Path]:
    """Return an argument that is a path or holds paths, as a list; an empty one for None."""
    if value is None or isinstance(value, str | Path):
        return [] if value is None else [value]
    items = list(cast("Iterable[object]", value)) if isinstance(value, Sequence) else None
    if items is None or not all(isinstance(item, str | Path) for item in items):
        raise OptionError(
            f"{name} must be paths of files, or names of built-in ones",
            found=_argument_text(value),
            remedy="pass a path or a list of paths; what was calibrated or tuned has save(path)",
        )
    return cast("list[str | Path]", items)


def one_of(name: str, value: object, known: Collection[str], *, error: Raised = OptionError) -> str:
    """Return an argument that is one of a few words."""
    if not isinstance(value, str) or value not in known:
        raise error(
            f"unknown {name}", found=_argument_text(value), expected=" or ".join(map(repr, known))
        )
    return value


def refuse(given: Mapping[str, object], why: str, remedy: str) -> None:
    """Refuse options of the command line, by flag, that were given; None and False are not."""
    for flag, value in given.items():
        if value not in (None, [], ()) and value is not False:
            raise OptionError(f"{flag} {why}", remedy=remedy)


def function(name: str, value: object) -> Callable[..., Any] | None:
    """Return an argument that is a function, or None."""
    if value is not None and not callable(value):
        raise OptionError(f"{name} must be a function", found=_argument_text(value))
    return value


def mapping(name: str, value: object, *, what: str) -> Mapping[Any, Any]:
    """Return an argument that is a mapping."""
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} must be a mapping", found=_argument_text(value), expected=what)
    return cast("Mapping[Any, Any]", value)


def array(name: str, value: object) -> np.ndarray[Any, Any]:
    """Return numbers as an array, or raise DataError."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # lists of different lengths
        raise DataError("not an array", where=name, found=_argument_text(value)) from error


def _real(value: object) -> float | None:
    """Return a real number as a float, infinite if it is too large; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        real = float(value)
    except OverflowError:
        return math.inf if int(value) > 0 else -math.inf  # pyright: ignore[reportArgumentType] an int
    return None if math.isnan(real) else real


def _argument_text(value: object) -> str:
    """Return how an argument is shown: short ones as Python writes them, others by their type."""
    if isinstance(value, str | bytes | bool | float | complex | None):
        return repr(value)
    if isinstance(value, numbers.Integral) and abs(int(value)) < 2**64:
        return repr(int(value))
    return f"an object of type {type(value).__name__}"
