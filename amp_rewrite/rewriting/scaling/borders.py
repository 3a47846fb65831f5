"""Where a scaled set ends: a Mul between a value and what reads it, at the cheapest places.

A set is cut into parts that operators tie together: what leaves the range is scaled, an output or
the input of a Softmax is not. Of the others first all, then none are; sweeps change each part where
that saves a Mul, and the better of the two is taken. Several readers of a value share one Mul.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from amp_rewrite.values.scales.call import Exponents, System
from amp_rewrite.values.scales.solve import Roof, Room, Solution, Solver, smallest_number

_FACTORS = range(-14, 16)
"""The exponents of factors that a Mul may have: the normal powers of two of float16."""

_SWEEPS = 8


def solve_with_borders(
    system: System,
    limits: Mapping[int, float],
    of_read: Mapping[int, float] | None = None,
    roof: Roof | None = None,
) -> Solution:
    """Return exponents with which elements fit, and few Muls."""
    read_limits = limits if of_read is None else of_read
    of_reads = {read: read_limits[value] for value, read in system.links if value in read_limits}
    solver = Solver(system, {**of_reads, **limits}, roof)
    parts = _Parts(solver)
    numbers = parts.numbers()
    pinned = system.exponents.pinned
    left = solver.needed - numbers.keys()
    refused = {root: pinned.get(root, "no exponent lets all of it fit") for root in left}
    solution = solver.solution(numbers, refused)
    if any(factor not in _FACTORS for _, _, factor in borders(system, solution.exponents)):
        return solver.solution({}, dict.fromkeys(numbers, "no Mul can have its factor") | refused)
    return replace(solution, chosen=_joined(system, solution))


def _joined(system: System, found: Solution) -> dict[int, list[int]]:
    """Return the elements of sets that are read where they are made, with one exponent, as one."""
    sets, find = Exponents(len(system.exponents)), system.exponents.find
    for value, read in system.links:
        if found.exponents.get(value) == found.exponents.get(read) is not None:
            sets.unite(find(value)[0], find(read)[0])
    joined: dict[int, list[int]] = {}
    for root, members in found.chosen.items():
        joined.setdefault(sets.find(root)[0], []).extend(members)
    return joined


def borders(system: System, exponents: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return the value, the element that reads it and the factor's exponent, by Mul and reader."""
    get = exponents.get
    ratios = ((v, read, get(read, 0) - get(v, 0)) for v, read in system.links)
    return [(value, read, factor) for value, read, factor in ratios if factor]


class _Link(NamedTuple):
    """A place at which a node reads a value."""

    value: int
    made: int
    read: int


class _Parts:
    """The sets of a settled system, and the links between them."""

    def __init__(self, solver: Solver) -> None:
        self.solver, self.exponents, self.needed = solver, solver.exponents, solver.needed
        self.links: dict[int, list[_Link]] = {}
        self.of_value: dict[int, list[_Link]] = {}
        self.next_to: dict[int, list[tuple[int, Fraction]]] = {}
        for value, read in solver.system.links:
            (a, of_a), (b, of_b) = self.exponents.find(value), self.exponents.find(read)
            if a != b:
                ratio, link = Fraction(of_a) / Fraction(of_b), _Link(value, a, b)
                self.of_value.setdefault(value, []).append(link)
                self.next_to.setdefault(a, []).append((b, ratio))
                self.next_to.setdefault(b, []).append((a, 1 / ratio))
                self.links.setdefault(a, []).append(link)
                self.links.setdefault(b, []).append(link)
        self.units = self._units()

    def _units(self) -> dict[int, int]:
        """Return, by root, the number of which the exponent of a set has to be a multiple."""
        units: dict[int, int] = {}
        for element in self.solver.elements:
            root, ratio = self.exponents.find(element)
            if isinstance(ratio, Fraction):
                units[root] = math.lcm(units.get(root, 1), ratio.denominator)
        return units

    def numbers(self) -> dict[int, int | Fraction]:
        numbers, seen = dict[int, "int | Fraction"](), set[int]()
        for root in sorted(self.needed):
            if root not in seen and root not in self.exponents.pinned:
                ratios = self._reached(root)
                seen |= ratios.keys()
                numbers |= self._chosen(root, ratios)
        return numbers

    def _reached(self, root: int) -> dict[int, Fraction]:
        """Return what is linked to a set -> how many times its number; first seen, first served."""
        ratios, left = {root: Fraction(1)}, [root]
        while left:
            at = left.pop()
            for other, ratio in self.next_to.get(at, ()):
                if other not in ratios and other not in self.exponents.pinned:
                    ratios[other] = ratios[at] * ratio
                    left.append(other)
        return ratios

    def _chosen(self, root: int, ratios: Mapping[int, Fraction]) -> dict[int, int | Fraction]:
        """Return the numbers of the sets around one that are scaled, with few Muls."""
        needed, rooms = self.needed & ratios.keys(), self.solver.rooms
        room = self._joined({part: rooms[part] for part in needed}, ratios)
        whole = [ratio / self.units.get(part, 1) for part, ratio in ratios.items()]
        number = None
        if room.is_needed:
            sign = room.sign
            full = {part: self.solver.room(part, sign * ratios[part]) for part in needed}
            number = smallest_number(self._joined(full, ratios), whole)
        if number is None:  # parts of it need other numbers: that of the first
            own = self.solver.room(root, rooms[root].sign)
            number = smallest_number(own, [Fraction(1, self.units.get(root, 1))])
        if number is None:
            return {}
        fitting = {part for part in ratios if self._fits(part, number * ratios[part])}
        starts = (fitting & needed, fitting)
        fewest = min((self._swept(start, fitting - needed) for start in starts), key=self._muls)
        return {part: _plain(number * ratios[part]) for part in ratios if part in fewest}

    def _swept(self, start: set[int], free: set[int]) -> set[int]:
        """Return the parts that are scaled after each that is free changed where it saves a Mul."""
        scaled = {*start}
        for _ in range(_SWEEPS):
            before = {*scaled}
            for part in sorted(free):
                values = {link.value for link in self.links[part]}
                muls = self._muls(scaled, values)
                scaled ^= {part}
                if self._muls(scaled, values) >= muls:
                    scaled ^= {part}
            if scaled == before:
                break
        return scaled

    def _muls(self, scaled: set[int], values: Iterable[int] | None = None) -> int:
        """Return how many Muls some values need, or all of them, if some parts are scaled."""
        links = (link for value in values or self.of_value for link in self.of_value[value])
        return len({v for v, a, b in links if (a in scaled) != (b in scaled)})

    def _joined(self, rooms: Mapping[int, Room], ratios: Mapping[int, Fraction]) -> Room:
        """Return the room of several sets, in terms of the first of them."""
        joined = Room()
        for part, room in rooms.items():
            joined = joined.joined(room, ratios[part])
        return joined

    def _fits(self, part: int, number: Fraction) -> bool:
        room = self.solver.room(part, number)
        return not number % self.units.get(part, 1) and room.low <= number <= room.high


def _plain(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number
