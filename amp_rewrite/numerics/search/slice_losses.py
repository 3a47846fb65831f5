"""Outputs of several scales in a search: the slices by which `verify` judges them.

An output may hold boxes and scores, or a position and a speed. What a search accepts has to hold
for each slice of such an output, within what the slices move by themselves (compare/slices.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_rewrite.dtypes import DType
from amp_rewrite.numerics.compare.distance import Comparer, Tolerances
from amp_rewrite.numerics.search.tolerance import Tolerance

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class SliceLosses:
    """What slices may differ by in one search.

    Attributes:
        names: The outputs with slices of widely differing sizes on all batches.
        yardsticks: How far these outputs move by themselves, over all batches: comparers by name.
    """

    names: tuple[str, ...]
    yardsticks: tuple[Mapping[str, Comparer], ...]
    apart: tuple[Outputs, ...]
    _tolerance: Tolerance
    _tolerances: Tolerances

    @staticmethod
    def of(
        tolerance: Tolerance,
        low: DType,
        references: Sequence[Outputs],
        noises: Callable[[], Sequence[Sequence[Outputs]]],
        apart: Callable[[], Sequence[Outputs]] | None = None,
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
        none: Sequence[Outputs] = [{} for _ in references]
        empty = SliceLosses((), (), tuple(none), tolerance, limits)
        if tolerance.metric == "top1" or not references:
            return empty
        same = _compare_outputs(tuple(references[0]), limits, references, references, none)
        names = tuple(name for name, comparer in same.items() if comparer.slices.axes)
        if not names:
            return empty
        rows = tuple(none if apart is None else apart())
        comparisons = tuple(
            _compare_outputs(names, limits, references, each, rows) for each in noises()
        )
        return SliceLosses(names, comparisons, rows, tolerance, limits)

    def loss(self, references: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
        """Return the loss of the worst slice on all batches, in the metric of the search.

        A slice that is as far off as it may be has the limit as its loss.
        """
        compared = _compare_outputs(self.names, self._tolerances, references, outputs, self.apart)
        shares = (self._share(name, comparer) for name, comparer in compared.items())
        share = max(shares, default=0.0)
        if math.isinf(share):
            return share
        squared = self._tolerance.metric == "cosine"  # 1 - cosine grows with the distance squared
        return self._tolerance.limit * (share * share if squared else share)

    def _share(self, name: str, comparer: Comparer) -> float:
        worst = comparer.result([each[name] for each in self.yardsticks]).slice
        if worst is None:
            return 0.0
        return worst.distance / worst.limit if worst.limit else 0.0 if worst.ok else math.inf


def _compare_outputs(
    names: Sequence[str],
    limits: Tolerances,
    references: Sequence[Outputs],
    outputs: Sequence[Outputs],
    apart: Sequence[Outputs],
) -> dict[str, Comparer]:
    comparers = {name: Comparer(name, limits) for name in names}
    for before, after, rows in zip(references, outputs, apart, strict=True):
        for name in names:
            fed = Comparer(name, limits)
            fed.add(before[name], after[name], rows.get(name))
            comparers[name].merge(fed)
    return comparers
