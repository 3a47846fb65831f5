"""How far an estimate may fall short of the truth: by the layers in a row without normalization.

Estimates halve the deviation with each sum of products, so that they raise no false alarm. What is
only told, and keeps nothing in float32, may ask for more: trained weights without a normalization
between them multiply a deviation by 1.5 more a layer than that.

Evidence: ten convolutions that triple the deviation each reach 169,000; the estimate is 906, and
with what may be missing 30,000, so that `convert` tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.paint.match import PRODUCTS, Chains, Demanded
from amp_rewrite.values.magnitudes.estimate import PEAK
from amp_rewrite.values.magnitudes.estimates import Estimates

_MISSING = 1.5
_MOST = 1 << 14


class Doubts(Demanded[int]):
    """How many sums of products lie in a row in front of each value."""

    most = _MOST

    def __init__(self, m: Chains, estimates: Estimates) -> None:
        """Know nothing yet."""
        super().__init__()
        self._m, self._estimates = m, estimates

    def operands(self, value: int) -> Sequence[int]:
        """Return what a value grows with."""
        m, node = self._m, self._m.maker(value)
        grows = m.op(node) in PRODUCTS or m.has(node, Trait.HOMOGENEOUS) or m.is_a(node, "Mul")
        return [v for v in m.data(node) if not m.is_constant(v)] if grows else ()

    def transfer(self, value: int, operands: Sequence[int | None]) -> int:
        """Return the number of a value by those of its operands."""
        node = self._m.maker(value)
        is_layer = node != ABSENT and self._m.op(node) in PRODUCTS
        return max((n or 0 for n in operands), default=0) + is_layer

    def largest(self, value: int) -> float:
        """Return what a value may reach if its estimate falls short; 0 if nothing is known."""
        estimate, layers = self._estimates[value], self[value] or 0
        return 0.0 if estimate is None else PEAK * estimate.spread * _MISSING**layers
