"""Exponents that depend on each other: a union-find whose links are ratios.

The equations are e(a) = r e(b), with a rational r: a value and its square, a value and its
reciprocal. All exponents zero is a solution of every system; what nothing ties to zero is free.
The structure is Tarjan's (R. Tarjan, "Efficiency of a Good But Not Linear Set Union Algorithm",
1975, https://doi.org/10.1145/321879.321884), each link weighted.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

Ratio = int | Fraction


class Joined(NamedTuple):
    """Two sets that became one: e(gone) = ratio * e(kept)."""

    gone: int
    kept: int
    ratio: Ratio


class Exponents:
    """The exponents of elements 0 to n - 1, each a multiple of that of the root of its set.

    Attributes:
        pinned: Root -> why all of its set have exponent 0.
    """

    def __init__(self, count: int) -> None:
        """Begin with free exponents that nothing ties together."""
        self._parent = list(range(count))
        self._ratio: list[Ratio] = [1] * count
        self._size = [1] * count
        self.pinned: dict[int, str] = {}

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self._parent)

    def find(self, element: int) -> tuple[int, Ratio]:
        """Return the root of an element's set, and the ratio of its exponent to the root's."""
        parent, ratio = self._parent, self._ratio
        above = parent[element]
        if parent[above] == above:  # nearly always
            return above, ratio[element]
        way: list[int] = []
        while parent[element] != element:
            way.append(element)
            element = parent[element]
        total: Ratio = 1
        for step in reversed(way):
            if ratio[step] != 1 or total != 1:
                total = _plain(ratio[step] * total)
            parent[step], ratio[step] = element, total
        return element, total

    def unite(self, a: int, b: int, ratio: Ratio = 1) -> Joined | None:
        """Let e(a) be `ratio` times e(b), which is not 0; None if no two sets became one.

        Two ratios for one pair leave 0 alone.
        """
        (root_a, of_a), (root_b, of_b) = self.find(a), self.find(b)
        is_plain = of_a == of_b == ratio == 1
        if root_a == root_b:
            if not is_plain and of_a != ratio * of_b:
                self.pin(root_a, "one value would need two exponents")
            return None
        link = 1 if is_plain else _plain(Fraction(ratio * of_b) / of_a)
        if self._size[root_a] > self._size[root_b]:
            root_a, root_b = root_b, root_a
            link = 1 if link == 1 else _plain(1 / Fraction(link))
        self._parent[root_a], self._ratio[root_a] = root_b, link
        self._size[root_b] += self._size[root_a]
        why = self.pinned.pop(root_a, None)
        if why is not None:
            self.pinned.setdefault(root_b, why)
        return Joined(root_a, root_b, link)

    def pin(self, element: int, why: str) -> None:
        """Let the exponent of an element, and so of its whole set, be 0."""
        self.pinned.setdefault(self.find(element)[0], why)


def _plain(ratio: Ratio) -> Ratio:
    """Return a ratio as a whole number, if it is one."""
    return int(ratio) if ratio == int(ratio) else ratio
