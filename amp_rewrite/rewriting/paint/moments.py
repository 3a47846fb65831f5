"""Of which means and products values are made, as far as formulas of second moments go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Flag, auto

import numpy as np

from amp_rewrite.graph.constants import MOST_READ
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Match
from amp_rewrite.rewriting.paint.match import (
    ADDED,
    FARTHEST,
    PRODUCTS,
    SIGNED,
    Demanded,
    Region,
)
from amp_rewrite.rewriting.paint.passes.keep_differences import sides_of

# operators: those that square what they add up.
_SQUARE_SUMS = frozenset({"ReduceSumSquare", "ReduceL2"})
# means and sums of windows, besides products.
_WINDOWS = having(Trait.SUMS_UP, Trait.AVERAGES) - _SQUARE_SUMS | {"Mean"}
# operators: what may stand around means and products, besides these.
AROUND = SIGNED | ADDED | {"Abs", "Clip", "Div", "Max", "Min", "Reciprocal", "Relu", "Sqrt"}
# operators: those that multiply.
_MULTIPLYING = PRODUCTS | _SQUARE_SUMS | {"Mul", "Pow"}
_KNOWN = AROUND | _MULTIPLYING | {"Where"}
_MOST = 4 * FARTHEST


class Part(Flag):
    """Of what a value is made."""

    NOTHING = 0
    PRODUCT = auto()
    MEAN = auto()
    MEAN_OF_PRODUCTS = auto()
    PRODUCT_OF_MEANS = auto()


_MEANS = Part.MEAN | Part.MEAN_OF_PRODUCTS


class Parts(Demanded[Part]):
    """Of which means and products each value is made."""

    most = _MOST

    def __init__(self, m: Match, variables: Collection[int] = ()) -> None:
        """Know nothing yet; `variables` are the weights that a step trains."""
        super().__init__()
        self._m, self._variables = m, variables

    def operands(self, value: int) -> Sequence[int]:
        """Return what is averaged, multiplied or added, or hands a value on."""
        m, node = self._m, self._m.maker(value)
        if node == ABSENT or m.is_constant(value):
            return ()
        window = self._window(node)
        if window != ABSENT:
            return (window,)
        return m.data(node) if m.op(node) in _KNOWN and not self._is_layer(node) else ()

    def transfer(self, value: int, operands: Sequence[Part | None]) -> Part:
        """Return the parts of a value by those of its operands."""
        m, node, parts = self._m, self._m.maker(value), Part.NOTHING
        for part in operands:
            parts |= part or Part.NOTHING
        if not operands:
            return parts
        if self._window(node) != ABSENT:
            mean_of = Part.MEAN_OF_PRODUCTS if Part.PRODUCT in parts else Part.NOTHING
            return parts | Part.MEAN | mean_of
        powers = m.power(node)[1]
        is_square = powers is not None and bool((powers == 2).all())
        is_product = m.is_a(node, "Mul") and m.factor(node) is None
        sums_up = m.op(node) in PRODUCTS | _SQUARE_SUMS
        if is_square or is_product or sums_up:
            of_means = Part.PRODUCT_OF_MEANS if Part.MEAN in parts else Part.NOTHING
            summed = Part.MEAN_OF_PRODUCTS if sums_up else Part.NOTHING
            return parts | Part.PRODUCT | of_means | summed
        return parts

    def _is_layer(self, node: int) -> bool:
        return any(self._is_fixed(v) for v in self._m.factors(node))

    def _is_fixed(self, value: int) -> bool:
        """Tell whether a value is a weight, trained or not, or computed of constants alone."""
        return self._m.is_fixed(value) or self._m.source(value) in self._variables

    def _window(self, node: int) -> int:
        """Return what a node averages or adds up, with weights of one sign; ABSENT for others."""
        m = self._m
        if m.op(node) in _WINDOWS:
            return m.data(node)[0]
        factors = m.factors(node)
        for k, weights in enumerate(factors):
            is_share = m.is_a(m.maker(m.source(weights)), "Softmax")
            if is_share or (self._is_fixed(weights) and m.facts.intervals[weights].low >= 0):
                return factors[1 - k]
        return ABSENT

    def of(self, value: int) -> Part:
        """Return the parts of a value."""
        return self[value] or Part.NOTHING

    def common(self, sides: Sequence[int]) -> set[int]:
        """Return the factors that all sides are made of, of which no mean was taken yet."""
        m, regions = self._m, [self._region([v]) for v in sides]
        nodes = {n for region in regions for n in region.nodes if m.op(n) in _MULTIPLYING}
        factors = {v for n in nodes if self._window(n) == ABSENT for v in m.data(n)}
        shared = factors.intersection(*(region.values for region in regions))
        return {v for v in shared if not self.of(v) & _MEANS}

    def behind(self, values: Sequence[int], stops: Iterable[int]) -> list[int]:
        """Return what computes values, back to the numbers of which all is made.

        Behind a derivative that is the last layer, for the numbers are nearly equal there, too.
        The shares of a mean are included: rounded ones do not add up to one.
        """
        m, region = self._m, self._region(values, stops)
        derived = [v for v in region.ends if self._is_derivative(m.source(v))]

        def enters(node: int) -> bool:
            return self._is_derivative(m.made(node)) or not self._is_layer(node)

        shares = [n for v in region.ends if m.is_a(n := m.maker(m.source(v)), "Softmax")]
        return [*region.nodes, *shares, *m.behind(*derived, enters=enters, most=_MOST).nodes]

    def _region(self, values: Sequence[int], stops: Iterable[int] = ()) -> Region:
        def enters(node: int) -> bool | None:
            return bool(self.of(self._m.made(node))) or None

        return self._m.behind(*values, enters=enters, stops=stops, most=_MOST)

    def _is_derivative(self, value: int) -> bool:
        """Tell whether a value is a difference, or the result of a filter of sum zero."""
        m, node = self._m, self._m.maker(value)
        if sides_of(m, node):
            return True
        for held in (m.stored(v) for v in m.factors(node)[1:]):
            if held is not None and held.size <= MOST_READ:
                rows = held.numpy().reshape(len(held.numpy()), -1).astype(np.float64)
                return bool((np.abs(rows.sum(1)) <= 1e-6 * np.abs(rows).sum(1)).all())
        return False
