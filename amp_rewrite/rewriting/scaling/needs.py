"""How far values are from the end of the low type: the exponents with which they fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.pipeline import Course, paint_fitting

MARGIN = 4.0
"""How many times larger than measured or estimated a value may become."""

_UNKNOWN = 4.0
"""The largest exponent of a value of which nothing is known."""

# operators: a root and a logarithm of the sum.
_NOT_THE_SUM = frozenset({"ReduceL2", "ReduceLogSum"})
"""Operators that give another number than the sum that they form, with another exponent."""

Magnitudes = Mapping[str, float]
"""Value -> a magnitude."""


@dataclass(frozen=True)
class Measured:
    """Measurements of a model in float32.

    Attributes:
        sums: Result -> what the partial sums of its node reached, where kernels may keep these in
            the low type.
    """

    largest: Magnitudes
    sums: Magnitudes = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """The largest of all."""
        return max((*self.largest.values(), *self.sums.values()), default=0.0)


class Needs:
    """The magnitudes of a model's values, and which of them have to fit.

    Attributes:
        largest: Value -> its largest magnitude, that of partial sums included, of those that would
            be low if all fitted.
    """

    def __init__(
        self, context: PaintContext, measured: Measured | None, course: Course | None = None
    ) -> None:
        """Look at the values; `course` is how their painting began, if that is known."""
        self.context, self._measured = context, measured
        self._flat = context.type_graph.flat
        self.largest: dict[int, float] = {}
        self._own: dict[int, float] = {}
        fitting = paint_fitting(context, course)
        # by vertex, and for ABSENT: whether it would be low if all fitted
        self._low = np.append(fitting.painting.allow, np.False_)
        self._is_counted = self._counted()
        for value in np.flatnonzero(self._is_counted & self._may_be_known()).tolist():
            if constant_tensor(context.type_graph, value) is None:
                self._look_at(value)

    def _may_be_known(self) -> Array:
        if self._measured is not None:
            return np.ones(self._flat.n_values, np.bool_)
        return self.context.values.intervals.may_reach(self.context.low.overflow)

    def _look_at(self, value: int) -> None:
        magnitude = self._known(value)
        if magnitude is not None and magnitude:
            self._own[value] = magnitude
            self.largest[value] = max(magnitude, self._summed(value))

    def roof(self, value: int) -> float:
        """Return the largest exponent of a value that fits as it is; of others `limits` tell."""
        if value in self._own or not self._is_counted[value]:
            return math.inf
        if constant_tensor(self.context.type_graph, value) is not None:
            return math.inf
        largest = self._roof(value)
        if largest is None or not math.isfinite(largest):
            return _UNKNOWN
        return max(0.0, limit_of(largest, self.context.low, MARGIN))

    def _counted(self) -> Array:
        """Return a mask of the values that something would compute or read in the low type.

        What the lists keep in float32, the squares of a norm, may be as large as it is.
        """
        graph, allow = self.context.type_graph, self._low
        counted = allow[np.array(graph.source, np.int64)]
        reads = allow[np.array(graph.reads, np.int64)] if graph.reads else np.zeros(0, np.bool_)
        values = np.array(self._flat.inputs, np.int64)
        counted[values[reads]] = True
        return counted

    def _known(self, value: int) -> float | None:
        """Return a magnitude that a value reaches: it was measured, or is bound to leave the range.

        An estimate is none: numbers scaled by one that is too large would become subnormal.
        """
        if self._measured is not None:
            return self._measured_of(value)
        reach = self.context.values.intervals[value].reach
        return reach if self.context.low.overflow <= reach <= FLOAT32.max else None

    def _roof(self, value: int) -> float | None:
        if self._measured is not None:
            return None
        bound = self.context.values.intervals[value].magnitude
        values = self.context.values
        estimate, outliers = values.estimates[value], values.outliers.peak(value)
        return bound if estimate is None else min(max(estimate.largest, outliers), bound)

    def _measured_of(self, value: int) -> float | None:
        """Return what was measured of a value, or of what it is moved from."""
        assert self._measured is not None, "something was measured"
        largest, flat, names = self._measured.largest, self._flat, self._flat.value_names
        while names[value] not in largest:
            node = flat.producer[value]
            if node == ABSENT or not has(flat.called(node), Trait.REARRANGES):
                return None
            value = flat.inputs_of(node)[0]
        return largest[names[value]]

    def _summed(self, value: int) -> float:
        """Return what partial sums reached, if they are low and have the exponent of the value."""
        flat, node = self._flat, self._flat.producer[value]
        if self._measured is None or node == ABSENT or flat.called(node).op_type in _NOT_THE_SUM:
            return 0.0
        is_low = bool(self._low[self.context.type_graph.source[value]])
        return self._measured.sums.get(flat.value_names[value], 0.0) if is_low else 0.0

    def limits(self) -> dict[int, float]:
        """Return the largest exponents with which values fit where they are read."""
        return self._limits(self._own)

    def limits_of_results(self) -> dict[int, float]:
        """Return the same with what a value is summed from."""
        return self._limits(self.largest)

    def _limits(self, magnitudes: Mapping[int, float]) -> dict[int, float]:
        low = self.context.low
        return {v: limit_of(m, low, MARGIN) for v, m in magnitudes.items()}

    def kept(self) -> frozenset[int]:
        """Return the constants that keep a reader in float32, since they do not fit."""
        marks = self.context.excluded.values()
        return frozenset(m.constant for m in marks if m.constant is not None)


def limit_of(largest: float, low: DType, margin: float) -> float:
    """Return the largest exponent by which a magnitude, times a margin, fits a type."""
    return math.inf if not largest else float(math.floor(math.log2(low.max / (largest * margin))))
