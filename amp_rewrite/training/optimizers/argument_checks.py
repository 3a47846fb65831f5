"""Checks of optimizers' arguments: OptimizerTypeError and OptimizerValueError."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.graph.names import is_utf8
from amp_rewrite.training.graph.training_graph import GraphValue

_CHECK = "check"
"""Key in the metadata of a field: (name, value) -> the value, checked."""


def number(
    name: str, value: object, *, low: float = 0.0, high: float = math.inf, above: bool = False
) -> float:
    """Return a number in [low, high) as a float; with `above`, `low` is excluded."""
    _check_real(name, value)
    upper = "" if high == math.inf else f" and less than {high:g}"
    finite = "a finite number " if high == math.inf else "a number "
    return arguments.number(
        name,
        value,
        low=low,
        high=math.nextafter(high, -math.inf),
        above=above,
        expected=f"{finite}{'above' if above else 'of at least'} {low:g}{upper}",
        error=OptimizerValueError,
    )


def real(name: str, value: object) -> float:
    """Return a real number, which may be infinite."""
    _check_real(name, value)
    return arguments.number(name, value, expected="a number", error=OptimizerValueError)


def _check_real(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise OptimizerTypeError(
            "a hyperparameter must be a number", where=name, found=type(value).__name__
        )


def whole(name: str, value: object, *, low: int, high: int = 2**63 - 1) -> int:
    """Return a number of steps or batches."""
    if arguments.whole_number(value) is None:
        raise OptimizerTypeError(f"{name} must be an integer", found=repr(value))
    return arguments.integer(name, value, low=low, high=high, error=OptimizerValueError)


def flag(name: str, value: object) -> bool:
    """Return a hyperparameter that is on or off, as a bool."""
    return arguments.switch(name, value, error=OptimizerTypeError)


def optimizer_name(given: object) -> str:
    """Return the name of an optimizer."""
    if not isinstance(given, str) or not given or not is_utf8(given):
        raise OptimizerValueError("Must specify the optimizer name.", found=ascii(given))
    return given


def label(what: str, given: object) -> str:
    """Return a name of something in the graph."""
    if not isinstance(given, str):
        raise OptimizerTypeError(
            f"the name of {what} must be a text", found=f"an object of type {type(given).__name__}"
        )
    if not given or not is_utf8(given):
        raise OptimizerValueError(f"an impossible name of {what}", found=ascii(given))
    return given


def listed(given: Iterable[Any], what: str) -> list[Any]:
    """Return an iterable as a list."""
    if not isinstance(given, Iterable) or isinstance(given, GraphValue):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptimizerTypeError(
            f"{what} must come in a list",
            found=f"an object of type {type(given).__name__}",
            remedy="pass what compute_gradients returned",
        )
    return list(given)


def pairs(given: Iterable[Any]) -> list[Any]:
    """Return (gradient, variable) pairs as a list."""
    entries = listed(given, "(gradient, variable) pairs")
    for pair in entries:
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise OptimizerTypeError(
                "not a (gradient, variable) pair",
                found=f"an object of type {type(pair).__name__}",  # pyright: ignore[reportUnknownArgumentType]
                remedy="pass what compute_gradients returned",
            )
    return entries


def field(check: Callable[..., Any], *, default: Any = dataclasses.MISSING, **bounds: Any) -> Any:
    """Return a field that holds `check(name, value, **bounds)`, or None if that is the default."""
    return dataclasses.field(default=default, metadata={_CHECK: partial(check, **bounds)})


class Checked:
    """Base of dataclasses with fields that `field` made."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for entry in dataclasses.fields(self):  # pyright: ignore[reportArgumentType] children are dataclasses
            value = getattr(self, entry.name)
            if _CHECK in entry.metadata and not (value is None and entry.default is None):
                value = entry.metadata[_CHECK](entry.name, value)
                object.__setattr__(self, entry.name, value)
