"""Exponents that let every value of a model fit: the smallest ones that do.

Each free set has one number to choose. Equations of three elements or more, products of values, are
settled first: a constant that serves one product alone takes what the product needs; where a
product is left with two free sets they become one; and of three, one that need not be scaled has
exponent 0. What is chosen is a solution of every equation, if not always the one with the fewest
sets at 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.values.scales.call import Joined, Product, Ratio, System

_ROUNDS = 3
"""Sweeps over products in which nothing is given up; more find little."""


@dataclass
class Room:
    """Between which exponents all elements of a set fit, in terms of that of its root."""

    low: float = -math.inf
    high: float = math.inf

    def joined(self, other: Room, ratio: Ratio) -> Room:
        """Return the room of this set with another one, whose exponent is `ratio` of this one's."""
        ends = sorted((other.low / float(ratio), other.high / float(ratio)))
        return Room(max(self.low, ends[0]), min(self.high, ends[1]))

    @property
    def is_needed(self) -> bool:
        """Whether exponent 0 does not fit."""
        return self.low > 0 or self.high < 0

    @property
    def sign(self) -> int:
        """The sign of the numbers that are in it, where 0 is not."""
        return -1 if self.high < 0 else 1


@dataclass
class Solution:
    """The factors that elements are multiplied by.

    Attributes:
        exponents: Element -> its exponent, of those that have another one than 0.
        chosen: Root of a set -> the elements in it.
        derived: The constants whose exponent follows from a product -> the product's result.
        refused: Root of a set that does not fit -> why it is not scaled.
    """

    exponents: dict[int, int] = field(default_factory=dict[int, int])
    chosen: dict[int, list[int]] = field(default_factory=dict[int, "list[int]"])
    derived: dict[int, int] = field(default_factory=dict[int, int])
    refused: dict[int, str] = field(default_factory=dict[int, str])


Roof = Callable[[int], float]
"""Value -> the largest exponent, 0 or above, with which it fits."""


def solve(system: System, limits: Mapping[int, float], roof: Roof | None = None) -> Solution:
    """Return the smallest exponents with which elements fit; `system` is settled in place."""
    solver = Solver(system, limits, roof)
    return solver.solution(*solver.smallest())


def is_solution(system: System, exponents: Mapping[int, int]) -> bool:
    """Tell whether exponents meet every equation of a system; elements without one have 0."""
    union, get = system.exponents, exponents.get
    for element in range(len(union)):
        root, ratio = union.find(element)
        if get(element, 0) != ratio * get(root, 0) or (root in union.pinned and get(element, 0)):
            return False
    return all(
        get(product.result, 0) == sum(power * get(e, 0) for e, power in product.factors)
        for product in system.products
    )


Numbers = Mapping[int, int | Fraction]
"""Root of a set -> its exponent; sets without one have 0."""


class Solver:
    """The sets of a system, of which products leave only such as can be chosen one by one."""

    def __init__(
        self, system: System, limits: Mapping[int, float], roof: Roof | None = None
    ) -> None:
        """Settle a system, in place; `limits` and `roof` are those of elements, as for `solve`."""
        self.system, self.exponents = system, system.exponents
        self.elements = system.elements()
        self.rooms: dict[int, Room] = {}
        self._limits, self._roof = limits, roof
        self._of_sign: dict[bool, dict[int, list[tuple[int, Ratio]]]] = {}
        self._slack: list[tuple[int, Product]] = []  # a root, and what it follows from
        for element, limit in limits.items():
            self._limit(element, limit)
        self._settle()

    @property
    def needed(self) -> set[int]:
        """The roots of the sets that do not fit with exponent 0."""
        return {root for root, room in self.rooms.items() if room.is_needed}

    def room(self, root: int, sign: Ratio) -> Room:
        """Return the room of a set for numbers of a sign, with the roofs of what grows by them."""
        room = self.rooms.get(root, Room())
        if self._roof is not None:
            for element, ratio in self._growing(sign > 0).get(root, ()):
                room = room.joined(Room(high=self._roof_of(element)), ratio)
        return room

    def _growing(self, is_positive: bool) -> dict[int, list[tuple[int, Ratio]]]:
        """Return, by root, the elements that grow with its number, if that is of this sign."""
        if is_positive not in self._of_sign:
            links: dict[int, list[tuple[int, Ratio]]] = {}
            for element in self.elements:
                root, ratio = self.exponents.find(element)
                if (ratio > 0) == is_positive:
                    links.setdefault(root, []).append((element, ratio))
            self._of_sign[is_positive] = links
        return self._of_sign[is_positive]

    def _roof_of(self, element: int) -> float:
        """Return the roof of what has no limit; each reader of a constant has none."""
        is_read = element >= self.system.flat.n_values
        if element in self._limits or self._roof is None:
            return math.inf
        if is_read and element in self.system.constants:
            return math.inf
        return self._roof(self.system.value_of(element))

    def _limit(self, element: int, limit: float) -> None:
        root, ratio = self.exponents.find(element)
        room = Room(high=limit) if ratio == 1 else Room().joined(Room(high=limit), ratio)
        self.rooms[root] = self.rooms.get(root, Room()).joined(room, 1)

    def _settle(self) -> None:
        """Reduce products of several sets to ties of two."""
        left = self._without_slack(self.system.products)
        for _ in range(_ROUNDS):
            left, before = [p for p in left if not self._tied(p)], len(left)
            if len(left) == before:
                break
        for product in left:
            while not self._tied(product):
                self._give_one_up(product)

    def _without_slack(self, products: list[Product]) -> list[Product]:
        """Take out the products that one constant alone can meet."""
        bound = set[int]()
        constants = _made_of_constants(self.system)
        n_values, value_of, find = (
            self.system.flat.n_values,
            self.system.value_of,
            self.exponents.find,
        )
        for element in self.elements:
            root, ratio = find(element)
            value = element if element < n_values else value_of(element)
            if value not in constants or ratio not in (1, -1):
                bound.add(root)
        bound |= self.needed
        sums = [self._sum(product) for product in products]
        times = Counter(root for of_sum in sums for root in of_sum)
        left: list[Product] = []
        for product, found in zip(products, sums, strict=True):
            roots = [self.exponents.find(element)[0] for element, _ in reversed(product.factors)]
            spare = [r for r in roots if abs(found.get(r, 0)) == 1 == times[r] and r not in bound]
            if spare:
                self._slack.append((spare[0], product))
            else:
                left.append(product)
        return left

    def _sum(self, product: Product) -> dict[int, Ratio]:
        """Return a product as an equation sum = 0 of free roots, those that cancel left out."""
        sums: dict[int, Ratio] = {}
        for element, power in ((product.result, -1), *product.factors):
            root, ratio = self.exponents.find(element)
            if root not in self.exponents.pinned:
                sums[root] = sums.get(root, 0) + power * ratio
        return {root: power for root, power in sums.items() if power}

    def _tied(self, product: Product) -> bool:
        """Tell whether a product leaves at most two free sets, and tie these."""
        left = [*self._sum(product).items()]
        if len(left) == 1:
            self.exponents.pin(left[0][0], "it is multiplied with what is not scaled")
        elif len(left) == 2:
            (a, of_a), (b, of_b) = left
            self._join(self.exponents.unite(a, b, -Fraction(of_b) / Fraction(of_a)))
        return len(left) <= 2

    def _join(self, joined: Joined | None) -> None:
        if joined is not None and joined.gone in self.rooms:
            room = self.rooms.get(joined.kept, Room())
            self.rooms[joined.kept] = room.joined(self.rooms.pop(joined.gone), joined.ratio)

    def _give_one_up(self, product: Product) -> None:
        """Let one factor of a product have exponent 0: the last one that need not be scaled."""
        left = self._sum(product)
        roots = [self.exponents.find(e)[0] for e, _ in product.factors]
        free = [root for root in reversed(roots) if root in left]
        spare = [root for root in free if not self.rooms.get(root, Room()).is_needed]
        if not spare and any(self.rooms[root].low > 0 for root in free):
            self._ask_all_roofs()
        chosen = spare[0] if spare else min(free, key=lambda r: -self.rooms[r].high)
        self.exponents.pin(chosen, "it is a factor of a product of which another one is scaled")

    def _ask_all_roofs(self) -> None:
        """Limit all elements by their roofs: sets have to be compared that would grow."""
        limits = ((element, self._roof_of(element)) for element in self.elements)
        for element, limit in [*limits] if self._roof is not None else ():
            if limit < math.inf:
                self._limit(element, limit)
        self._roof = None

    def smallest(self) -> tuple[dict[int, int | Fraction], dict[int, str]]:
        """Return the number nearest to 0 of each set that needs one, and why others have none."""
        numbers, refused = dict[int, "int | Fraction"](), dict[int, str]()
        ratios: dict[int, set[Ratio]] = {root: set() for root in self.needed}
        for element in self.elements if ratios else ():
            root, ratio = self.exponents.find(element)
            if root in ratios:
                ratios[root].add(ratio)
        for root, multiple in ratios.items():
            why = self.exponents.pinned.get(root)
            room = self.rooms[root]
            number = None if why else smallest_number(self.room(root, room.sign), multiple)
            if number is None:
                refused[root] = why or "no exponent lets all of it fit"
            else:
                numbers[root] = number
        return numbers, refused

    def solution(self, numbers: Numbers, refused: Mapping[int, str]) -> Solution:
        """Return the exponents of all elements, from those of their sets."""
        solution = Solution(chosen={root: [] for root in numbers}, refused=dict(refused))
        for element in self.elements if numbers else ():
            root, ratio = self.exponents.find(element)
            if root in numbers:
                solution.chosen[root].append(element)
                solution.exponents[element] = int(numbers[root] * ratio)
        self._derive(solution, numbers)
        return solution

    def _derive(self, found: Solution, numbers: Numbers) -> None:
        """Let the constants that serve one product alone take what it needs."""
        needed: dict[int, tuple[Fraction, int]] = {}
        for root, product in self._slack:
            total: Ratio = 0
            power: Ratio = 0
            for element, times in ((product.result, -1), *product.factors):
                of, ratio = self.exponents.find(element)
                if of == root:
                    power += times * ratio
                elif of in numbers:
                    total += times * ratio * numbers[of]
            if total:
                needed[root] = (-Fraction(total) / power, product.result)
        for element in self.elements if needed else ():
            root, ratio = self.exponents.find(element)
            if root in needed:
                number, result = needed[root]
                found.exponents[element] = int(number * ratio)
                found.derived[element] = result


def smallest_number(room: Room, ratios: Iterable[Ratio]) -> int | None:
    """Return the number nearest to 0 within a room that every ratio makes whole, or None."""
    unit = math.lcm(*(Fraction(ratio).denominator for ratio in ratios))
    if room.high < 0:
        number = math.floor(room.high / unit) * unit
        return number if number >= room.low else None
    number = math.ceil(room.low / unit) * unit
    return number if number <= room.high else None


def _made_of_constants(system: System) -> set[int]:
    """Return the values that are constants, or are made of constants alone."""
    flat = system.flat
    values = {system.value_of(constant) for constant in system.constants}
    values.update(v for body in flat.bodies for v in body.initializers)
    values.add(ABSENT)
    inputs, starts = flat.inputs, flat.input_start
    for node in range(flat.n_nodes):
        if values.issuperset(inputs[starts[node] : starts[node + 1]]) and not flat.bodies_in(node):
            values.update(flat.outputs_of(node))
    return values - {ABSENT}
