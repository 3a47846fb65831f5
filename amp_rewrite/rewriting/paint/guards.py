"""Guards: what keeps a value away from zero, such as an epsilon that is added to it.

A guard is a bound that holds whatever the model is fed (|x| + eps, Clip), an addend in a sum whose
sign is not known, or a choice of Where. The 1 of 1 - Sigmoid(x) guards nothing: the difference ends
at zero. What only moves, scales or takes the root of a guarded value is guarded, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.match import ADDED, SIGNED, Chains, Demanded
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.propagate import Intervals

_ROUNDED = 2.0**-18
"""How far beyond an end bounds may be, relative to the other one, for the roundings of float32."""

_HOLLOW = -1.0
"""The guard of what is away from zero only because its divisor cannot be infinite."""

# those that leave zero where it is, as the root does.
_HANDING_ON = SIGNED | having(Trait.MULTIPLIES) | {"Sqrt"}

# those that hand on the least guard of their operands; of sums, and of Max, the result
# is an operand where the others are zero.
_LEAST = having(Trait.MOVES, Trait.CHANGES_SIGN) | ADDED | {"Max"}

# operators: those that divide, and by which input.
_DIVISORS = {"Div": 1, "Reciprocal": 0}


class Guards(Demanded[float]):
    """The magnitudes that keep values away from zero; 0, or less, for none."""

    def __init__(self, chains: Chains, intervals: Intervals) -> None:
        """Know nothing yet."""
        super().__init__()
        self._m, self._intervals = chains, intervals

    def of(self, value: int) -> float:
        """Return the magnitude that keeps a value away from zero, or 0."""
        return max(self[value] or 0.0, 0.0)

    def operands(self, value: int) -> Sequence[int]:
        """Return what a float32 value is made of."""
        m = self._m
        read = m.read(m.maker(value)) if m.graph.is_float32(value) else []
        return [v for v in read if v != ABSENT]

    def transfer(self, value: int, operands: Sequence[float | None]) -> float:
        """Return what guards a value."""
        m, node, interval = self._m, self._m.maker(value), self._intervals[value]
        if not operands:
            return interval.away
        if self._is_quotient(node) or (m.op(node) in _HANDING_ON and _HOLLOW in operands):
            return _HOLLOW
        if interval.away or (m.op(node) in ADDED and _ends_at_zero(interval)):
            return interval.away
        data = data_of(m.flat, node)
        guards = [guard for v in data if (guard := self.of(v))]
        if not guards:
            return 0.0
        if m.op(node) in _LEAST:
            return min(guards)
        if m.is_a(node, "Sqrt"):
            return math.sqrt(guards[0])
        return math.prod(guards) if m.is_a(node, "Mul") and len(guards) == len(data) else 0.0

    def _is_quotient(self, node: int) -> bool:
        """Tell whether a value is away from zero only because its divisor cannot be infinite.

        1 / Sqrt(length) is at least 3e-10, for lengths are 64-bit integers; that guards nothing.
        """
        read, intervals = self._m.read(node), self._intervals
        divisor = _DIVISORS.get(self._m.op(node))
        if divisor is None or intervals[read[divisor]].is_point:
            return False
        return divisor == 0 or intervals[read[0]].away >= 1


def _ends_at_zero(interval: Interval) -> bool:
    """Tell whether bounded numbers reach zero and no further, as 1 - Sigmoid(x) does."""
    least, most = sorted((abs(interval.low), abs(interval.high)))
    return least <= _ROUNDED * most < math.inf
