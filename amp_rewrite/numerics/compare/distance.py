"""How far the outputs of a rewritten model are from those of the original: one measure.

The information of an output is its spread, not its offset: 288.15 K less 288.02 K. So an error is
taken relative to the spread of the original: its deviation around its mean, over all elements and
batches. Few numbers may lie near each other by chance: their spread counts `slack_of` times, and
never for more than their size. A single number is measured by its size.

1. `error`: the root mean square error over the spread, at most 4.5 %.
2. `largest`: the largest error of an element over the spread, or over the element's own distance
   from the mean where that is more: at most 50 %, in all but one of 10,000 elements.
3. `classes`: the rows whose largest element is another one, at most 1 %.
4. `slice`: where slices along an axis differ widely in size or spread, each by its own (slices.py).
5. No finite element is lost: none becomes NaN or infinite.
6. Integers may differ in 1 % of the elements. With a tolerance (`rtol`, `atol`) every element is
   held to that instead of 1 to 3.
7. An output that is one number everywhere in the original is not compared: it proves nothing.

Evidence: a year, a latitude and a price of which the file has lost all but the offset
(tests/numerics/compare/test_distance.py): by their size, they pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from amp_rewrite.numerics.compare.slices import (
    CONSTANT,
    SliceComparison,
    Slices,
    Tolerances,
    are_shares,
    slack_of,
)
from amp_rewrite.numerics.inputs.batches import Array

COSINE = 0.999
"""The cosine of two vectors without offset that are ERROR apart."""

ERROR = math.sqrt(2 * (1 - COSINE))
"""The largest root mean square error over the spread if no tolerance is given."""

LARGEST = 0.5
"""The largest error of an element then, over the spread or its own distance from the mean."""

SPARED = 1e-4
"""The share of elements that may be further off."""

AGREEMENT = 0.99
"""The smallest share of rows with the same largest element, or of equal whole numbers."""

ROUNDINGS = 4.0
"""How many of its roundings the relative tolerance of a type is."""

Fault = Literal["", "shape", "lost", "error", "largest", "classes", "slice", "elements"]
Excuse = Literal["", "weights", "original"]


def yardstick(size: float, spread: float, numbers: float) -> float:
    """Return what errors of so many numbers are relative to: their spread, at most their size."""
    if spread <= CONSTANT * size:
        return size
    return min(size, spread * float(slack_of(numbers - 1)))


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output, over all feeds.

    Attributes:
        max_abs: The largest difference between finite elements.
        scaled_error: That, relative to the largest magnitude of the original.
        error: The root mean square error over the spread of the original; None if it is not
            floating-point, as for `largest` and `cosine`.
        largest: The largest error of an element over the spread, or over its own distance from
            the mean of its batch; None if a tolerance was asked for.
        within: The share of elements within the tolerance; NaN equals NaN, infinity itself.
        nan: How many elements are NaN in the rewritten model and finite in the original.
        inf: The same for infinities.
        top1: The share of rows along the last axis with the same largest element, near ties
            aside; None without rows of classes.
        shares: Measure -> which share of its limit it is; more than 1 fails.
        fault: The first measure that fails; "" if it passes.
        excuse: Which yardstick moves the output as far although it fails: the rounded "weights"
            alone, or the "original" where its inputs move by one part in a million; "" for none.
        constant: The one number that all elements of the original are, if it is 0 or there are
            several: that the other model agrees says nothing.
        apart: How many elements lie in rows that are masked whole: they only must stay finite.
        slice: The slice furthest beyond its own limit, or nearest to it; None where no axis has
            slices of widely differing sizes.
    """

    name: str
    elements: int
    max_abs: float
    scaled_error: float
    error: float | None
    largest: float | None
    cosine: float | None
    within: float
    nan: int
    inf: int
    top1: float | None
    shape_differs: bool
    shares: Mapping[Fault, float] = field(default_factory=dict["Fault", float])
    fault: Fault = ""
    excuse: Excuse = ""
    constant: float | None = None
    apart: int = 0
    slice: SliceComparison | None = None

    @property
    def ok(self) -> bool:
        """Whether every measure is within its limit."""
        return not self.fault

    @property
    def share(self) -> float:
        """The largest share of its limit that any measure is."""
        return max(self.shares.values(), default=0.0)

    @property
    def compared(self) -> bool:
        """Whether there was anything in it that could have differed."""
        return self.elements > 0 and self.constant is None


@dataclass
class Comparer:
    """Compares one output feed by feed; nothing but sums is kept.

    Errors are relative to the size in a `usual` comparison if that is larger: the probability of
    speech in silence may be next to nothing. Classes do not count then: inputs that are not usual
    belong to none.
    """

    name: str
    tolerances: Tolerances
    usual: Comparer | None = None
    elements: int = 0
    fitting: int = 0
    max_abs: float = 0.0
    largest: float = 0.0
    finite: int = 0
    scaled_error: float = 0.0
    nan: int = 0
    inf: int = 0
    unequal: int = 0
    far: int = 0
    largest_error: float = 0.0
    rows: int = 0
    same_rows: int = 0
    is_table: bool = True
    slices: Slices = field(default_factory=Slices)
    shape_differs: bool = False
    is_float: bool = False
    least: float = math.inf
    most: float = -math.inf
    apart: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    """Over the finite elements: original, original^2, rewritten^2, their product, difference^2."""

    def add(self, original: Any, rewritten: Any, apart: Array | None = None) -> None:
        """Take one feed's results into account; the rows `apart` must only stay finite."""
        if original is None or rewritten is None:
            self.shape_differs |= original is not rewritten
            return
        if isinstance(original, list):
            self.shape_differs |= len(original) != len(rewritten)
            for a, b in zip(original, rewritten, strict=False):
                self.add(a, b)
            return
        a, b = np.asarray(original), np.asarray(rewritten)  # in the output's shape and its type
        if a.shape != b.shape:
            self.shape_differs = True
            return
        if is_float(a) and is_float(b):
            self.is_float = True
            a, b = a.astype(np.float64), b.astype(np.float64)  # in the output's shape, float64
            if apart is not None:
                self._add_lost(a[apart], b[apart])
                self.apart += int(a[apart].size)
                a, b = a[~apart], b[~apart]  # (rows left, axes behind those of `apart`)
            self.elements += a.size
            self._add_floats(a, b, rank=np.ndim(original))
            if apart is None:
                self._add_classes(a, b)
        else:
            self.elements += a.size
            self._add_others(a, b)

    def result(
        self, alone: Comparer | None = None, *, all_measures: bool = True
    ) -> OutputComparison:
        """Return the comparison over all feeds so far.

        `alone` is how far the rounded weights alone move the output. Without `all_measures`
        slices are not judged, and classes only in tables.
        """
        noise = Slices() if alone is None else alone.slices
        worst = self.slices.worst(self.tolerances.of_slices, noise) if all_measures else None
        shares = self._shares(worst, judges_all=all_measures)
        faults: list[Fault] = [name for name, share in shares.items() if not share <= 1]  # or NaN
        return OutputComparison(
            name=self.name,
            elements=self.elements,
            max_abs=self.max_abs,
            scaled_error=self.scaled_error,
            error=self._error() if self.is_float else None,
            largest=self.largest_error if "largest" in shares else None,
            cosine=self._cosine(),
            within=self._within,
            nan=self.nan,
            inf=self.inf,
            top1=self.same_rows / self.rows if self.rows else None,
            shape_differs=self.shape_differs,
            shares=dict(shares),
            fault=faults[0] if faults else "",
            constant=self._constant(),
            apart=self.apart,
            slice=worst,
        )

    @property
    def asks_yardsticks(self) -> bool:
        """Whether the verdict rests on how far rounded weights or moved inputs move the output."""
        asks = self.slices.asks_for_noise(self.tolerances.of_slices)
        return asks or not self.result().ok

    @property
    def spread(self) -> float:
        """The yardstick of errors, over all feeds."""
        if not self.finite:
            return 0.0
        mean, square = self.sums[0] / self.finite, self.sums[1] / self.finite
        own = yardstick(math.sqrt(square), math.sqrt(max(0.0, square - mean * mean)), self.finite)
        return max(own, self._usual_spread)

    @property
    def _usual_spread(self) -> float:
        return 0.0 if self.usual is None else max(self.usual.spread, self.tolerances.least)

    @property
    def _within(self) -> float:
        return self.fitting / self.elements if self.elements else 1.0

    def _shares(self, worst: SliceComparison | None, *, judges_all: bool) -> Mapping[Fault, float]:
        """Return which share of its limit each measure is."""
        if self.shape_differs:
            return {"shape": math.inf}
        shares: dict[Fault, float] = {}
        if self.nan or self.inf or self.unequal:
            shares["lost"] = math.inf
        if self.tolerances.strict:
            shares["elements"] = self._share_of_tolerance()
        elif not self.is_float:
            shares["elements"] = (1 - self._within) / (1 - AGREEMENT)
        else:
            shares |= self._float_shares()
            if self.rows and self.usual is None and (self.is_table or judges_all):
                shares["classes"] = (1 - self.same_rows / self.rows) / (1 - AGREEMENT)
        if worst is not None:
            shares["slice"] = worst.share
        return shares

    def _share_of_tolerance(self) -> float:
        limit = max(self.tolerances.rtol, self.tolerances.atol)
        share = self.scaled_error / limit if limit else math.inf if self.scaled_error else 0.0
        if not self.is_float or self.fitting < self.elements:
            return 0.0 if self.fitting == self.elements else max(share, 1.0 + CONSTANT)
        return min(share, 1.0)

    def _float_shares(self) -> Mapping[Fault, float]:
        """Return the shares of the errors."""
        far = self.largest_error / LARGEST
        is_spared = self.far <= SPARED * self.finite
        return {"error": self._error() / ERROR, "largest": min(far, 1.0) if is_spared else far}

    def _constant(self) -> float | None:
        """Return the one number that all elements of the original are, if that proves nothing."""
        if not self.finite or self.finite < self.elements or self.unequal:
            return None
        if self.least == self.most == 0 and not self.max_abs:
            return 0.0
        is_one = self.most - self.least <= CONSTANT * max(abs(self.most), abs(self.least))
        return self.least if is_one and self.finite > 1 else None

    def _add_lost(self, a: Array, b: Array) -> Array:
        """Count what became NaN or infinite; return where the original is finite."""
        finite = np.isfinite(a)  # as a: a mask
        self.nan += int(np.count_nonzero(np.isnan(b) & finite))
        self.inf += int(np.count_nonzero(np.isinf(b) & finite))
        return finite

    def _add_floats(self, a: Array, b: Array, *, rank: int) -> None:
        finite = self._add_lost(a, b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))  # as a: a mask
        self.fitting += int(np.count_nonzero(same & ~finite))
        self.unequal += int(np.count_nonzero(~same & ~finite))
        both = finite & np.isfinite(b)  # as a: a mask
        if both.all():
            difference = b - a
            self.slices.add(a, difference, rank)
            self._add_finite(a.ravel(), b.ravel(), difference.ravel())
            return
        # as a, 0 where either is not finite
        base, other = np.where(both, a, 0.0), np.where(both, b, 0.0)
        self.slices.add(base, other - base, rank)
        self._add_finite(a[both], b[both], (other - base)[both])

    def _add_classes(self, a: Array, b: Array) -> None:
        """Count the rows along the last axis whose largest element is the same one."""
        self.is_table &= a.ndim == 2
        if not a.ndim or not a.size or a.shape[-1] < 2:
            return
        if a.ndim != 2 and a.min() >= 0 and a.max() <= 1 and not are_shares(a, a.ndim - 1):
            return  # probabilities that do not add up to 1 are each of its own
        comparable = ~(np.isnan(b) & np.isfinite(a)).any(-1)  # a.shape[:-1]: a mask of rows
        first, other = a.argmax(-1), b.argmax(-1)  # a.shape[:-1]: places along the last axis
        same = first == other  # a.shape[:-1]: a mask of rows
        # a.shape[:-1]: elements of a
        chosen, most = np.take_along_axis(a, other[..., None], -1)[..., 0], a.max(-1)
        with np.errstate(invalid="ignore"):  # infinity less infinity
            if a.ndim == 2:  # what one rounding can make equal: two classes of 0.9999 and 1
                # a.shape[:-1]: as a's elements
                near = self.tolerances.rtol / ROUNDINGS * np.abs(most)
            else:
                largest = self.tolerances.rtol * float(np.abs(a).max())
                # a.shape[:-1]: as a's elements
                near = np.maximum(largest, ERROR * (most - a.mean(-1)))
            same |= most - chosen <= near
        self.rows += first.size
        self.same_rows += int(np.count_nonzero(same & comparable))

    def _add_finite(self, a: Array, b: Array, difference: Array) -> None:
        if not a.size:
            return
        error, magnitude = np.abs(difference), np.abs(a)  # (finite elements,)
        products = (a.sum(), dot(a, a), dot(b, b), dot(a, b), dot(error, error))
        self.sums = [had + float(more) for had, more in zip(self.sums, products, strict=True)]
        largest = float(magnitude.max())
        self.least, self.most = min(self.least, float(a.min())), max(self.most, float(a.max()))
        self.largest, self.finite = max(self.largest, largest), self.finite + a.size
        scale = max(largest, 0.0 if self.usual is None else self.usual.largest)
        # a number, or below: (elements,)
        limit = self.tolerances.atol + self.tolerances.rtol * scale
        self.fitting += int(np.count_nonzero(error <= limit))
        worst = float(error.max())
        self.max_abs = max(self.max_abs, worst)
        if largest:
            self.scaled_error = max(self.scaled_error, worst / largest)
        elif worst:
            self.scaled_error = math.inf
        if not self.tolerances.strict:
            self._add_far(a, error)

    def _add_far(self, a: Array, error: Array) -> None:
        """Count the elements that are further off than the limit of single ones."""
        square, mean = dot(a, a) / a.size, float(a.mean())
        own = yardstick(math.sqrt(square), float(a.std()), a.size)
        spread = max(own, self._usual_spread)
        if not error.any():
            return
        if not spread:
            self.far, self.largest_error = self.far + int(np.count_nonzero(error)), math.inf
            return
        # (finite elements,)
        relative = error / np.maximum(spread, np.abs(a - mean))
        self.far += int(np.count_nonzero(relative > LARGEST))
        self.largest_error = max(self.largest_error, float(relative.max()))

    def _add_others(self, a: Array, b: Array) -> None:
        self.fitting += int(np.count_nonzero(a == b))
        if a.size and a.dtype.kind in "iu" and b.dtype.kind in "iu":
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))  # as a
            self.max_abs = max(self.max_abs, float(difference.max()))

    def _error(self) -> float:
        if not self.finite or not self.sums[4]:
            return 0.0
        spread = self.spread
        return math.sqrt(self.sums[4] / self.finite) / spread if spread else math.inf

    def _cosine(self) -> float | None:
        original, rewritten = self.sums[1], self.sums[2]
        if not self.is_float or not original * rewritten:
            return None if original == rewritten or not self.is_float else 0.0
        return self.sums[3] / math.sqrt(original * rewritten)


def add_feed(
    comparers: Mapping[str, Comparer],
    expected: Mapping[str, Any],
    outputs: Mapping[str, Any],
    apart: Mapping[str, Array] | None = None,
) -> None:
    """Take the outputs of one feed into account; the rows `apart` must only stay finite."""
    for name, comparer in comparers.items():
        comparer.add(expected[name], outputs[name], (apart or {}).get(name))


def results(comparers: Mapping[str, Comparer]) -> tuple[OutputComparison, ...]:
    """Return the comparisons of several outputs, where slices may be noise."""
    return tuple(comparer.result(all_measures=False) for comparer in comparers.values())


def dot(a: Array, b: Array) -> float:
    """Return the inner product of two vectors; `a @ b` wakes the threads of BLAS for it."""
    return float(np.einsum("i,i->", a, b))


def is_float(array: Array) -> bool:
    """Tell whether an array is floating-point, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"
