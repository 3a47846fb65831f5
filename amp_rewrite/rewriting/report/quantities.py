"""Numbers as people say them."""

from __future__ import annotations

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_STEP = 1000
_THREE_DIGITS = 100


def in_bytes(count: int) -> str:
    """Return a number of bytes with three digits at least: "58.4 MB"."""
    number, unit = float(count), 0
    while abs(number) >= _STEP and unit < len(_UNITS) - 1:
        number, unit = number / _STEP, unit + 1
    digits = 0 if unit == 0 or abs(number) >= _THREE_DIGITS else 1
    return f"{number:,.{digits}f} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """Return how many there are of something: "1 node", "2,000 nodes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
