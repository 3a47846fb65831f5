"""Tables as columns of numbers, whose strings are numbers too: what keeps the page small."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from amp_rewrite.base.printable import printable

NONE = -1
"""What stands in a column for nothing."""

Columns = dict[str, list[Any]]
"""The name of a column -> its entries."""


@dataclass
class Strings:
    """The strings of a page, each of them once.

    Attributes:
        texts: The strings, as a reader is shown them.
    """

    texts: list[str] = field(default_factory=list[str])
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, text: str | None) -> int:
        """Return the number of a string, NONE for None."""
        if text is None:
            return NONE
        number_of = self._numbers.get(text)
        if number_of is None:
            number_of = self._numbers[text] = len(self.texts)
            self.texts.append(printable(text))
        return number_of
