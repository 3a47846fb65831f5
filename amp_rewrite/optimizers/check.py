"""Checks of hyperparameters."""

from __future__ import annotations

import math
import numbers

from amp_rewrite.optimizers.errors import OptimizerTypeError, OptimizerValueError


def number(
    name: str, value: object, *, low: float = 0.0, high: float = math.inf, above: bool = False
) -> float:
    """Return a hyperparameter as a float.

    Args:
        name: What it is called.
        value: What was given.
        low: The smallest value allowed.
        high: What it must stay below.
        above: Whether `low` itself is excluded.

    Raises:
        OptimizerTypeError: It is no real number.
        OptimizerValueError: It is NaN or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptimizerTypeError(
            "a hyperparameter must be a number", where=name, found=type(value).__name__
        )
    given = float(value)
    if not ((given > low if above else given >= low) and given < high):  # false for NaN too
        upper = "" if high == math.inf else f" and less than {high:g}"
        finite = "a finite number " if high == math.inf else "a number "
        raise OptimizerValueError(
            f"impossible {name}",
            found=given,
            expected=f"{finite}{'above' if above else 'of at least'} {low:g}{upper}",
            remedy=f"pass another {name}",
        )
    return given
