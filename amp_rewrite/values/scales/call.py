"""Exponents that depend on each other, and a node as rules of exponents see it.

The equations of two are e(a) = r e(b), with a rational r: a value and its square, a value and its
reciprocal. They are a union-find whose links are ratios. All exponents zero is a solution of every
system; what nothing ties to zero is free. The structure is Tarjan's (R. Tarjan, "Efficiency of a
Good But Not Linear Set Union Algorithm", 1975, https://doi.org/10.1145/321879.321884).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.flat import ABSENT, Attribute, FlatGraph
from amp_rewrite.graph.infer import FlatTypes

Ratio = int | Fraction

UNSCALED = "and gives other results for scaled numbers"
"""Why what a node reads or makes is not scaled."""


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


class Product(NamedTuple):
    """e(result) is the sum of e(factor) times its power."""

    result: int
    factors: tuple[tuple[int, int], ...]


class ScaledAttribute(NamedTuple):
    """An attribute that is multiplied by 2 to the power of `ratio` times an element's exponent."""

    node: int
    name: str
    default: float
    element: int
    ratio: int


@dataclass
class System:
    """The equations between the exponents of a model.

    An element is a value, or a constant as one input of one node reads it: constants that are
    short, or read once, have an exponent for each reader. Element n_values + s is what is read at
    position s of `flat.inputs`: a constant, or a value in front of which a Mul may be added.

    Attributes:
        flat: The model.
        types: The types of its values.
        exponents: The ratios between elements.
        products: The equations of more than two elements.
        attributes: What attributes become.
        constants: The elements that are constants.
        links: A value and the element that a node reads it as, of values that may be multiplied
            in between; empty where no node is to be added.
    """

    flat: FlatGraph
    types: FlatTypes
    exponents: Exponents
    products: list[Product] = field(default_factory=list[Product])
    attributes: list[ScaledAttribute] = field(default_factory=list[ScaledAttribute])
    constants: set[int] = field(default_factory=set[int])
    links: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def elements(self) -> list[int]:
        """Return the values, and what else is an element: most places are read as the value."""
        reads = {*self.constants, *(read for _, read in self.links)}
        n_values = self.flat.n_values
        return [*range(n_values), *sorted(read for read in reads if read >= n_values)]

    def value_of(self, element: int) -> int:
        """Return the value that an element is."""
        n_values = self.flat.n_values
        return element if element < n_values else self.flat.inputs[element - n_values]


@dataclass
class Call:
    """A node whose operator a rule describes, and the elements that its inputs and outputs are."""

    system: System
    node: int
    inputs: list[int]
    outputs: list[int]

    @cached_property
    def attributes(self) -> Mapping[str, Attribute]:
        """The node's attributes."""
        return self.system.flat.attributes(self.node)

    def attribute(self, name: str, default: Any) -> Any:
        """Return the value of an attribute."""
        attribute = self.attributes.get(name)
        return default if attribute is None or attribute.reference else attribute.value

    def input(self, index: int) -> int:
        """Return the element of an input, ABSENT for one that is not there."""
        return self.inputs[index] if index < len(self.inputs) else ABSENT

    def output(self, index: int) -> int:
        """Return the element of an output, ABSENT for one that is not there."""
        return self.outputs[index] if index < len(self.outputs) else ABSENT

    def number(self, index: int) -> float | None:
        """Return the number that an input is, if it is a constant of one element."""
        values = self.system.flat.inputs_of(self.node)
        value = values[index] if index < len(values) else ABSENT
        tensor = None if value == ABSENT else stored_tensor(self.system.flat, value)
        if tensor is None or tensor.size != 1:
            return None
        return float(np.asarray(tensor.numpy()).astype(np.float64).reshape(-1)[0])

    def same(self, *elements: int) -> None:
        """Let elements have one exponent."""
        held = [element for element in elements if element != ABSENT]
        unite = self.system.exponents.unite
        for element in held[1:]:
            unite(element, held[0])

    def ratio(self, element: int, of: int, ratio: Ratio) -> None:
        """Let the exponent of an element be a multiple of that of another one."""
        if element == ABSENT or of == ABSENT:
            self.pin(element, of)
        else:
            self.system.exponents.unite(element, of, ratio)

    def product(self, result: int, *factors: int, powers: tuple[int, ...] = ()) -> None:
        """Let the exponent of a result be the sum of those of its factors, times their powers."""
        if ABSENT in (result, *factors):
            self.pin(result, *factors)
            return
        exponents = powers or (1,) * len(factors)
        self.system.products.append(Product(result, tuple(zip(factors, exponents, strict=True))))

    def pin(self, *elements: int) -> None:
        """Let elements have exponent 0, for what the node computes does not scale."""
        held = [element for element in elements if element != ABSENT]
        if held:
            flat = self.system.flat
            name, op = flat.node_names[self.node], flat.called(self.node).op_type
            for element in held:
                why = f"{name} ({op}) reads or makes it, {UNSCALED}"
                self.system.exponents.pin(element, why)

    def pin_all(self) -> None:
        """Let nothing that the node reads or makes be scaled."""
        self.pin(*self.inputs, *self.outputs)

    def scale_attribute(self, name: str, default: float, element: int, ratio: int = 1) -> None:
        """Let an attribute be multiplied with an element."""
        if element != ABSENT:
            scaled = ScaledAttribute(self.node, name, default, element, ratio)
            self.system.attributes.append(scaled)


Rule = Callable[[Call], None]
"""Says of a node how the exponents of what it reads and makes are tied together."""
