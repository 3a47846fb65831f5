"""How large values are, as far as shapes are known: what is not known is None, never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from amp_rewrite.graph.flat import ABSENT, FlatGraph

Shape = Sequence[int | None]


class Sizes:
    """Shapes and numbers of elements of a model's values."""

    def __init__(self, flat: FlatGraph, inferred: Mapping[int, Shape] | None = None) -> None:
        """Take the shapes that the file records; those of `inferred`, by value, count instead."""
        self._flat, self._inferred = flat, inferred or {}
        self._elements: dict[int, int | None] = {}

    def shape(self, value: int) -> Shape | None:
        """Return a value's shape, None for a free dimension; None if it is not known."""
        if value == ABSENT:
            return None
        lengths = self._inferred.get(value)
        return self._flat.recorded_shape(value) if lengths is None else lengths

    def elements(self, value: int) -> int | None:
        """Return how many elements a value has; None if that is not known."""
        if value not in self._elements:
            self._elements[value] = self._count_elements(value)
        return self._elements[value]

    def _count_elements(self, value: int) -> int | None:
        shape = self.shape(value)
        if shape is None:
            node = ABSENT if value == ABSENT else self._flat.producer[value]
            held = None if node == ABSENT else self._flat.held(node)
            return None if held is None else held.size
        return product_of(shape)


def product_of(lengths: Shape | None) -> int | None:
    """Return the product of lengths; None if one of them is not known, or none is."""
    static = [length for length in lengths or () if length is not None]
    return None if lengths is None or len(static) < len(lengths) else math.prod(static)
