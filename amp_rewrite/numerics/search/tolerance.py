"""What "the tolerance holds" means for a search: one metric and one limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import DType
from amp_rewrite.numerics.compare.distance import COSINE, ERROR, Comparer, Tolerances
from amp_rewrite.numerics.inputs.batches import Array

METRICS = ("max-relative", "error", "cosine", "top1")

_Outputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A metric and its limit; a loss of 0 is perfect, and the tolerance holds up to `limit`.

    Attributes:
        metric: "max-relative": the largest |low - float32| over the largest |float32| of an
            output. "error": what `verify` measures over all batches (compare/distance.py), the
            root mean square error over the spread of an output first of all. "cosine": 1 - the
            cosine between the two outputs. "top1": the share of rows (along the last axis) whose
            largest element is another one.
        limit: The largest loss to accept.
    """

    metric: str
    limit: float

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            OptionError: The metric is unknown or the limit is negative.
        """
        arguments.one_of("metric", self.metric, METRICS)
        arguments.number("tolerance", self.limit, low=0, expected="a number of at least 0")

    @staticmethod
    def default(metric: str, rtol: float) -> Tolerance:
        """Return the usual limit: that of `verify`, cosine 0.999, no other class, or `rtol`."""
        limits = {"error": ERROR, "cosine": 1 - COSINE, "top1": 0.0}
        return Tolerance(metric, limits.get(metric, rtol))

    def loss(self, reference: Array, output: Array, apart: Array | None = None) -> float:
        """Return the loss of one output; infinite where finite numbers became infinite or NaN.

        The rows `apart`, elements of the first axes, must only stay finite.
        """
        if reference.dtype.kind != "f":
            return _disagreement(reference, output)
        if reference.shape != output.shape:
            return float("inf")
        if apart is not None:
            if not np.isfinite(output[np.isfinite(reference)]).all():
                return float("inf")
            reference, output = reference[~apart], output[~apart]
        finite = np.isfinite(reference)
        a, b = reference[finite].astype(np.float64), output[finite].astype(np.float64)
        if not np.isfinite(b).all():
            return float("inf")
        if not a.size:
            return 0.0
        if self.metric == "cosine":
            return _angle(a, b)
        if self.metric == "error":
            norm = float(np.linalg.norm(a))
            return float(np.linalg.norm(b - a)) / norm if norm else 0.0
        if self.metric == "top1":
            return _other_class(reference, output)
        largest = float(np.abs(a).max())
        error = float(np.abs(b - a).max())
        return error / largest if largest else (float("inf") if error else 0.0)

    def worst(
        self,
        reference: Mapping[str, Array],
        outputs: Mapping[str, Array],
        apart: Mapping[str, Array] | None = None,
    ) -> float:
        """Return the largest loss over all outputs, without the rows of each that are apart."""
        rows = apart or {}
        losses = (self.loss(a, outputs[name], rows.get(name)) for name, a in reference.items())
        return max(losses, default=0.0)


def _angle(a: Array, b: Array) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not norm:
        return 0.0 if float(np.linalg.norm(a)) == float(np.linalg.norm(b)) else 1.0
    return max(0.0, 1.0 - float(a @ b) / norm)


def _other_class(reference: Array, output: Array) -> float:
    if reference.ndim == 0 or reference.shape[-1] < 2:
        return 0.0
    return float((reference.argmax(-1) != output.argmax(-1)).mean())


def _disagreement(reference: Array, output: Array) -> float:
    """Return the share of other elements in an output that is not floating-point."""
    if reference.shape != output.shape:
        return float("inf")
    return float((reference != output).mean()) if reference.size else 0.0


@dataclass(frozen=True)
class SliceLosses:
    """What outputs may differ by over all batches, and slices of those of several scales.

    An output may hold boxes and scores, or a position and a speed. What a search accepts has to
    hold for each slice of such an output, within what the slices move by themselves
    (compare/slices.py). The metric "error" is measured over all batches too.

    Attributes:
        names: The outputs with slices of widely differing sizes; all outputs for "error".
        yardsticks: How far these outputs move by themselves, over all batches: comparers by name.
    """

    names: tuple[str, ...]
    yardsticks: tuple[Mapping[str, Comparer], ...]
    apart: tuple[_Outputs, ...]
    _tolerance: Tolerance
    _tolerances: Tolerances

    @staticmethod
    def of(
        tolerance: Tolerance,
        low: DType,
        references: Sequence[_Outputs],
        noises: Callable[[], Sequence[Sequence[_Outputs]]],
        apart: Callable[[], Sequence[_Outputs]] | None = None,
    ) -> SliceLosses:
        """Look for outputs of several scales.

        Args:
            tolerance: What a search is for. Classes alone have no slices.
            low: The low type.
            references: The outputs of the float32 model for each batch.
            noises: Returns the same as yardsticks move them; called if there is such an output.
            apart: Returns the rows of outputs that are masked whole, for each batch; called then.
        """
        strict = tolerance.metric == "max-relative"
        limits = Tolerances.of(low, rtol=tolerance.limit if strict else None)
        none: Sequence[_Outputs] = [{} for _ in references]
        empty = SliceLosses((), (), tuple(none), tolerance, limits)
        if tolerance.metric == "top1" or not references:
            return empty
        same = _compare_outputs(tuple(references[0]), limits, references, references, none)
        scaled = tuple(name for name, comparer in same.items() if comparer.slices.axes)
        names = tuple(references[0]) if tolerance.metric == "error" else scaled
        if not names:
            return empty
        rows = tuple(none if apart is None else apart())
        comparisons = tuple(
            _compare_outputs(names, limits, references, each, rows)
            for each in (noises() if scaled else ())
        )
        return SliceLosses(names, comparisons, rows, tolerance, limits)

    def loss(self, references: Sequence[_Outputs], outputs: Sequence[_Outputs]) -> float:
        """Return the loss of the worst output or slice on all batches, in the metric of the search.

        What is as far off as it may be has the limit as its loss.
        """
        compared = _compare_outputs(self.names, self._tolerances, references, outputs, self.apart)
        shares = (self._share(name, comparer) for name, comparer in compared.items())
        share = max(shares, default=0.0)
        if math.isinf(share):
            return share
        squared = self._tolerance.metric == "cosine"  # 1 - cosine grows with the distance squared
        return self._tolerance.limit * (share * share if squared else share)

    def _share(self, name: str, comparer: Comparer) -> float:
        found = comparer.result([each[name] for each in self.yardsticks])
        if self._tolerance.metric == "error":
            return found.share
        return 0.0 if found.slice is None else found.slice.share


def _compare_outputs(
    names: Sequence[str],
    limits: Tolerances,
    references: Sequence[_Outputs],
    outputs: Sequence[_Outputs],
    apart: Sequence[_Outputs],
) -> dict[str, Comparer]:
    comparers = {name: Comparer(name, limits) for name in names}
    for before, after, rows in zip(references, outputs, apart, strict=True):
        for name in names:
            fed = Comparer(name, limits)
            fed.add(before[name], after[name], rows.get(name))
            comparers[name].merge(fed)
    return comparers
