"""What may be said of a loss: numbers, weights and how it is reduced."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from amp_rewrite.errors import LossError

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction.

    Raises:
        LossError: It is none of REDUCTIONS.
    """
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise LossError(
            "unknown reduction", found=repr(reduction), expected=" or ".join(REDUCTIONS)
        )


def check_integer(name: str, given: object) -> int:
    """Return an option that is an integer.

    Raises:
        LossError: It is not one that int64 holds.
    """
    number = None if isinstance(given, bool) or not isinstance(given, numbers.Integral) else given
    if number is None or not -(2**63) <= int(number) < 2**63:
        raise LossError(f"{name} must be an integer", found=repr(given), remedy="pass an int")
    return int(number)


def check_truth(name: str, given: object) -> bool:
    """Return an option that is true or false.

    Raises:
        LossError: It is neither.
    """
    if not isinstance(given, bool):
        raise LossError(f"{name} must be true or false", found=f"{given!r:.60}")
    return given


def check_number(name: str, given: object) -> float:
    """Return an option that is a finite number.

    Raises:
        LossError: It is not one.
    """
    try:
        if not isinstance(given, bool) and isinstance(given, numbers.Real):
            number = float(given)
            if math.isfinite(number):
                return number
    except OverflowError:
        pass
    raise LossError(f"{name} must be a finite number", found=f"{given!r:.60}")


def check_between(name: str, given: object, low: float, high: float) -> float:
    """Return an option that is a number between two, both of which it may be.

    Raises:
        LossError: It is not.
    """
    number = check_number(name, given)
    if not low <= number <= high:
        raise LossError(f"impossible {name}", found=repr(given), expected=f"{low:g} to {high:g}")
    return number


def check_positive(name: str, given: object) -> float:
    """Return an option that is a number above 0.

    Raises:
        LossError: It is not.
    """
    number = check_number(name, given)
    if number <= 0:
        raise LossError(f"impossible {name}", found=repr(given), expected="a number above 0")
    return number


def check_weights(name: str, given: object, rank: int | None = 1) -> np.ndarray[Any, Any]:
    """Return an option that is an array of weights, in float32.

    Args:
        name: The name of the option.
        given: What the user said.
        rank: How many axes it has; None is any number.

    Raises:
        LossError: It is not an array of finite numbers of at least 0, or has other axes.
    """
    try:
        found = np.asarray(given, np.float32)
    except (TypeError, ValueError, OverflowError):
        found = np.array(np.nan)
    fits = rank is None or found.ndim == rank
    if not fits or not np.isfinite(found).all() or (found < 0).any():
        raise LossError(
            f"impossible {name}",
            found=f"{given!r:.60}",
            expected="finite numbers of at least 0" + (", one for each class" if rank == 1 else ""),
        )
    return found
