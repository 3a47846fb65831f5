"""How far the outputs of a rewritten model are from those of the original.

Evidence: rows that name another class (tests/numerics/compare/test_slices.py): by the distance
alone they pass; with the classes compared, they fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.numerics.compare.slices import ALLOWED, Limits, SliceComparison, Slices, are_shares
from amp_rewrite.numerics.inputs.batches import Array

COSINE = 0.999
"""The cosine that two outputs must have if no tolerance is given."""

DISTANCE = math.sqrt(2 * (1 - COSINE))
"""The largest |rewritten - original| / |original| if no tolerance is given: two vectors of one
length that are that far apart have that cosine. Unlike the cosine it notices another length."""

SLICE_DISTANCE = 0.1
"""The same for the worst slice of many; the others lie on both sides of the whole."""

AGREEMENT = 0.99
"""The smallest share of rows with the same largest element, or of equal integers, in that case."""

ROUNDINGS = 4.0
"""How many of its roundings the relative tolerance of a type is."""

Fault = Literal["", "shape", "lost", "distance", "classes", "slice", "elements"]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What each element of an output may differ by: `rtol * largest + atol`.

    Attributes:
        rtol: Tolerance relative to the largest magnitude of the output, or of a slice of another
            scale: an output whose largest number is 1000 cannot be right to 0.004.
        atol: Absolute tolerance.
        strict: Whether every element must be within: so if a tolerance was asked for. Otherwise
            an output as a whole must be within DISTANCE and AGREEMENT, because the worst of a
            million elements behind a hundred layers says little.
        least: The size to which slices are held that are smaller: the smallest normal number of
            the type.
    """

    rtol: float
    atol: float
    strict: bool
    least: float = 0.0

    @staticmethod
    def of(low: DType, rtol: float | None = None, atol: float | None = None) -> Tolerances:
        """Return the given tolerances, one that is not given being 0, or those of a type.

        Raises:
            OptionError: One is not a number of at least 0.
        """
        least = low.smallest_normal
        if rtol is None and atol is None:
            return Tolerances(low.rtol, 0.0, strict=False, least=least)
        expected = "a number of at least 0"
        return Tolerances(
            0.0 if rtol is None else arguments.number("rtol", rtol, low=0, expected=expected),
            0.0 if atol is None else arguments.number("atol", atol, low=0, expected=expected),
            strict=True,
            least=least,
        )

    @property
    def of_slices(self) -> Limits:
        """What a slice may differ by."""
        if self.strict:
            return Limits(self.rtol, self.atol, self.least, strict=True)
        return Limits(SLICE_DISTANCE, 0.0, self.least, strict=False)


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output, over all feeds.

    Attributes:
        name: Its name.
        dtype: The element type in the original model.
        elements: How many elements were compared.
        max_abs: The largest difference between finite elements.
        max_rel: The largest difference relative to the original element, where that is not 0.
        scaled_error: The largest difference relative to the largest magnitude of the original.
        cosine: The cosine between the two; None if it is not floating-point, or both are 0.
        distance: |rewritten - original| / |original| (Euclidean, over the finite elements); None
            if it is not floating-point.
        within: The share of elements within the tolerance; NaN equals NaN, infinity itself.
        nan: How many elements are NaN in the rewritten model and finite in the original.
        inf: The same for infinities.
        top1: The share of rows along the last axis whose largest element is the same one. Of an
            output that is no table (rows, classes), elements count as one that differ by less than
            the relative tolerance, or than DISTANCE times what the largest is above the row's mean;
            of a table, those that one rounding can make equal.
            None unless it is floating-point, with rows of at least two elements, and where it holds
            probabilities that do not add up to 1.
        shape_differs: Whether a feed gave another shape.
        ok: Whether it holds; see Tolerances.
        fault: What it fails by: its shape, finite numbers that it lost, its distance, the classes
            of its rows, a slice, or single elements; "" if it holds.
        constant: The one number that all elements are in both models, if it is 0 or there are
            several elements: that they agree in it says nothing. None if they are not.
        apart: How many elements lie in rows that are masked whole; they count for nothing above
            but NaN and infinities.
        apart_error: The largest difference among these, relative to the largest magnitude of the
            original.
        slice: The slice furthest beyond its own limit, or nearest to it; None where no axis has
            slices of widely differing sizes.
        as_original: It is beyond the tolerance, and so is the original itself where its inputs
            move by one part in a million: it is judged against that.
    """

    name: str
    dtype: str
    elements: int
    max_abs: float
    max_rel: float
    scaled_error: float
    cosine: float | None
    distance: float | None
    within: float
    nan: int
    inf: int
    top1: float | None
    shape_differs: bool
    ok: bool
    constant: float | None = None
    apart: int = 0
    apart_error: float = 0.0
    slice: SliceComparison | None = None
    fault: Fault = ""
    as_original: bool = False

    @property
    def compared(self) -> bool:
        """Whether there was anything in it that could have differed."""
        return self.elements > 0 and self.constant is None


@dataclass(frozen=True, slots=True)
class OutputSize:
    """How large an output is.

    Attributes:
        mean_square: The mean of the squares of its finite elements.
        largest: The largest magnitude among them.
    """

    mean_square: float
    largest: float

    def at_least(self, magnitude: float) -> OutputSize:
        """Return the size, or that of an output of one magnitude if it is larger."""
        return OutputSize(max(self.mean_square, magnitude**2), max(self.largest, magnitude))


@dataclass
class Comparer:
    """Compares one output feed by feed; nothing but sums is kept.

    If the usual size is given, errors are relative to that where it is larger: the probability of
    speech in silence may be next to nothing. Which class is first does not count then either, for
    inputs that are not usual belong to none.
    """

    name: str
    tolerances: Tolerances
    usual: OutputSize | None = None
    dtype: str = ""
    elements: int = 0
    fitting: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    largest: float = 0.0
    finite: int = 0
    scaled_error: float = 0.0
    nan: int = 0
    inf: int = 0
    unequal: int = 0
    rows: int = 0
    same_rows: int = 0
    is_table: bool = True
    slices: Slices = field(default_factory=Slices)
    shape_differs: bool = False
    is_float: bool = False
    least: float = math.inf
    most: float = -math.inf
    apart: int = 0
    apart_worst: float = 0.0
    apart_largest: float = 0.0
    products: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    """Sums over the finite elements: original^2, rewritten^2, their product, difference^2."""

    def add(self, original: Any, rewritten: Any, apart: Array | None = None) -> None:
        """Take one feed's results into account; sequences are compared item by item.

        The rows `apart`, elements of the first axes, must only stay finite.
        """
        if original is None or rewritten is None:
            self.shape_differs |= original is not rewritten
            return
        if isinstance(original, list):
            self.shape_differs |= len(original) != len(rewritten)
            for a, b in zip(original, rewritten, strict=False):
                self.add(a, b)
            return
        a, b = np.asarray(original), np.asarray(rewritten)  # in the output's shape and its type
        self.dtype = _name(a)
        if a.shape != b.shape:
            self.shape_differs = True
            return
        if is_float(a) and is_float(b):
            self.is_float = True
            a, b = a.astype(np.float64), b.astype(np.float64)  # in the output's shape, float64
            if apart is not None:
                self._add_apart(a[apart], b[apart])
                a, b = a[~apart], b[~apart]  # (rows left, axes behind those of `apart`)
            self.elements += a.size
            self._add_floats(a, b, rank=np.ndim(original))
            if apart is None:
                self._add_classes(a, b)
        else:
            self.elements += a.size
            self._add_others(a, b)

    def merge(self, other: Comparer) -> None:
        """Take what another comparer of the same output has seen into account."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _MAXIMA:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.least = min(self.least, other.least)
        self.is_table &= other.is_table
        self.slices.merge(other.slices)
        self.dtype = other.dtype or self.dtype
        self.products = [a + b for a, b in zip(self.products, other.products, strict=True)]

    def result(self, yardsticks: Sequence[Comparer] | None = None) -> OutputComparison:
        """Return the comparison over all feeds so far.

        Args:
            yardsticks: How far the same output moves by itself on the same feeds. Without any,
                slices are not judged, for nobody knows which of them are noise, and classes in
                tables alone.
        """
        within = self.fitting / self.elements if self.elements else 1.0
        noises = None if yardsticks is None else [y.slices for y in yardsticks]
        worst = None if noises is None else self.slices.worst(self.tolerances.of_slices, noises)
        fault = self._fault(yardsticks)
        if not fault and worst is not None and not worst.ok:
            fault = "slice"
        return OutputComparison(
            name=self.name,
            dtype=self.dtype,
            elements=self.elements,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            scaled_error=self.scaled_error,
            cosine=self._cosine(),
            distance=self._distance(),
            within=within,
            nan=self.nan,
            inf=self.inf,
            top1=self.top1,
            shape_differs=self.shape_differs,
            ok=not fault,
            fault=fault,
            constant=self._constant(),
            apart=self.apart,
            apart_error=self._apart_error(),
            slice=worst,
        )

    @property
    def top1(self) -> float | None:
        """The share of rows with the same largest element, or None."""
        return self.same_rows / self.rows if self.rows else None

    @property
    def norm(self) -> float:
        """The Euclidean norm of the rewritten output."""
        return math.sqrt(self.products[1])

    @property
    def size(self) -> OutputSize:
        """How large the original's output is."""
        return OutputSize(self.products[0] / self.finite if self.finite else 0.0, self.largest)

    def _fault(self, yardsticks: Sequence[Comparer] | None) -> Fault:
        """Return what the output as a whole fails by."""
        if self.shape_differs:
            return "shape"
        if self._fits_tolerance():
            return ""
        if self.nan or self.inf:
            return "lost"
        distance = self._distance()
        if self.tolerances.strict or self.unequal or distance is None:
            some = AGREEMENT if distance is None and not self.tolerances.strict else 1.0
            return "" if not self.unequal and self.fitting >= some * self.elements else "elements"
        if distance > DISTANCE:
            return "distance"
        return "" if self.usual is not None or self._agrees(yardsticks) else "classes"

    def _agrees(self, yardsticks: Sequence[Comparer] | None) -> bool:
        """Tell whether enough rows have the same largest element.

        Rows that are no classes have near ties, of which the yardsticks swap as many.
        """
        if self.is_table or not self.rows:
            return self.same_rows >= AGREEMENT * self.rows
        if yardsticks is None:
            return True
        others = [1 - y.top1 for y in yardsticks if y.top1 is not None]
        return 1 - self.same_rows / self.rows <= max(
            1 - AGREEMENT, ALLOWED * max(others, default=0)
        )

    def _fits_tolerance(self) -> bool:
        """Tell whether every element is within the tolerance."""
        return self.fitting == self.elements and not (self.nan or self.inf)

    def _constant(self) -> float | None:
        """Return the number that all elements are in both models, if that says nothing."""
        differs = self.max_abs or self.nan or self.inf or self.unequal or self.least != self.most
        if differs or self.finite < self.elements or not (self.finite > 1 or self.least == 0):
            return None
        return self.least

    def _apart_error(self) -> float:
        largest = max(self.largest, self.apart_largest)
        return self.apart_worst / largest if largest else self.apart_worst

    def _add_lost(self, a: Array, b: Array) -> Array:
        """Count what became NaN or infinite; return where the original is finite."""
        finite = np.isfinite(a)  # as a: a mask
        self.nan += int(np.count_nonzero(np.isnan(b) & finite))
        self.inf += int(np.count_nonzero(np.isinf(b) & finite))
        return finite

    def _add_apart(self, a: Array, b: Array) -> None:
        """Take rows into account that count only if they lose finite numbers."""
        both = self._add_lost(a, b) & np.isfinite(b)
        self.apart += a.size
        if both.any():
            a, b = a[both], b[both]  # (finite elements,)
            self.apart_worst = max(self.apart_worst, float(np.abs(b - a).max()))
            self.apart_largest = max(self.apart_largest, float(np.abs(a).max()))

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
                near = np.maximum(largest, DISTANCE * (most - a.mean(-1)))
            same |= most - chosen <= near
        self.rows += first.size
        self.same_rows += int(np.count_nonzero(same & comparable))

    def _add_finite(self, a: Array, b: Array, difference: Array) -> None:
        if not a.size:
            return
        error, magnitude = np.abs(difference), np.abs(a)  # (finite elements,)
        largest = float(magnitude.max())
        self.least, self.most = min(self.least, float(a.min())), max(self.most, float(a.max()))
        self.largest, self.finite = max(self.largest, largest), self.finite + a.size
        scale = largest if self.usual is None else max(largest, self.usual.largest)
        # a number, or below: (elements,)
        limit = self.tolerances.atol + self.tolerances.rtol * scale
        if not self.tolerances.strict:  # a number may be off by its own rounding besides
            limit = limit + self.tolerances.rtol * magnitude
        self.fitting += int(np.count_nonzero(error <= limit))
        worst = float(error.max())
        self.max_abs = max(self.max_abs, worst)
        nonzero = magnitude > 0  # (finite elements,): a mask
        if nonzero.any():
            self.max_rel = max(self.max_rel, float((error[nonzero] / magnitude[nonzero]).max()))
            self.scaled_error = max(self.scaled_error, worst / largest)
        elif worst:
            self.scaled_error = math.inf
        for index, product in enumerate((a @ a, b @ b, a @ b, error @ error)):
            self.products[index] += float(product)

    def _add_others(self, a: Array, b: Array) -> None:
        self.fitting += int(np.count_nonzero(a == b))
        if a.size and a.dtype.kind in "iu" and b.dtype.kind in "iu":
            difference = np.abs(a.astype(np.float64) - b.astype(np.float64))  # as a
            self.max_abs = max(self.max_abs, float(difference.max()))

    def _distance(self) -> float | None:
        if not self.is_float:
            return None
        usual = 0.0 if self.usual is None else self.usual.mean_square * self.finite
        size = max(self.products[0], usual)
        if not size:
            return math.inf if self.products[3] else 0.0
        return math.sqrt(self.products[3] / size)

    def _cosine(self) -> float | None:
        squares = self.products[0] * self.products[1]
        if not self.is_float or not squares:
            both_zero = self.products[0] == self.products[1]
            return None if both_zero or not self.is_float else 0.0
        return self.products[2] / math.sqrt(squares)


_SUMS = ("elements", "fitting", "finite", "nan", "inf", "unequal", "rows", "same_rows", "apart")
_MAXIMA = (
    *("max_abs", "max_rel", "largest", "scaled_error", "shape_differs", "is_float", "most"),
    *("apart_worst", "apart_largest"),
)
"""The fields of a Comparer that are sums over feeds, and those that are the largest over them."""


def is_float(array: Array) -> bool:
    """Tell whether an array is floating-point, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _name(array: Array) -> str:
    return FLOAT32.name if array.dtype == np.float32 else array.dtype.name
