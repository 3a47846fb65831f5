"""Dataclasses whose fields are checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields
from functools import partial
from typing import Any

_CHECK = "check"
"""Key in the metadata of a field: (name, value) -> the value, checked."""


def checked(check: Callable[..., Any], *, default: Any = MISSING, **bounds: Any) -> Any:
    """Return a field whose value is what `check(name, value, **bounds)` returns."""
    return field(default=default, metadata={_CHECK: partial(check, **bounds)})


class Checked:
    """What rules and schedules have in common: dataclasses with fields that `checked` made."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            OptimizerTypeError: One has a wrong type.
            OptimizerValueError: One is out of its range.
        """
        for entry in fields(self):  # pyright: ignore[reportArgumentType] children are dataclasses
            if _CHECK in entry.metadata:
                value = entry.metadata[_CHECK](entry.name, getattr(self, entry.name))
                object.__setattr__(self, entry.name, value)
