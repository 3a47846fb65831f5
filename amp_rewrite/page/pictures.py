"""The data of the page's pictures: magnitudes, errors along the graph, and what a search tried."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.ranges.histograms import Histogram
from amp_rewrite.numerics.search.tuning import Tuning
from amp_rewrite.page.columns import NONE, Columns, Strings

_DIGITS = 3


def histogram_table(
    flat: FlatGraph, histograms: Mapping[str, Histogram], strings: Strings
) -> Columns:
    """Return a row for each value that was measured, with the node that makes it."""
    makers = makers_of(flat)
    rows = [
        (makers[name], name, histogram) for name, histogram in histograms.items() if name in makers
    ]
    return {
        "node": [node for node, _, _ in rows],
        "value": [strings.number(name) for _, name, _ in rows],
        "first": [histogram.first for _, _, histogram in rows],
        "counts": [list(histogram.counts) for _, _, histogram in rows],
        "zeros": [histogram.zeros for _, _, histogram in rows],
        "nonfinite": [histogram.nonfinite for _, _, histogram in rows],
        "smallest": [short(histogram.smallest) for _, _, histogram in rows],
        "largest": [short(histogram.largest) for _, _, histogram in rows],
    }


def error_table(flat: FlatGraph, report: VerifyReport | None) -> Columns:
    """Return the largest distance among the results of each node that verify looked at."""
    worst: dict[int, float] = {}
    number_of = {flat.node_names[node]: node for node in reversed(flat.main.nodes)}
    for inner in () if report is None else report.inside:
        node = number_of.get(inner.node, NONE)
        if node != NONE:
            worst[node] = max(worst.get(node, 0.0), inner.distance)
    return {
        "node": sorted(worst),
        "distance": [short(worst[node]) for node in sorted(worst)],
    }


def makers_of(flat: FlatGraph) -> dict[str, int]:
    """Return value of the main graph -> the node that makes it."""
    return {
        flat.value_names[value]: node
        for node in flat.main.nodes
        for value in flat.outputs_of(node)
        if flat.home[value] == MAIN and flat.value_names[value]
    }


def search_table(tuning: Tuning | None) -> dict[str, Any] | None:
    """Return what a search tried; None if there was none."""
    if tuning is None:
        return None
    return {
        "metric": tuning.tolerance.metric,
        "limit": tuning.tolerance.limit,
        "kept": [kept for kept, _ in tuning.tried],
        "loss": [short(loss) for _, loss in tuning.tried],
        "chosen": len(tuning.keep),
    }


def type_range(low: DType) -> dict[str, float]:
    """Return the powers of two between which a type has normal numbers, and its least one."""
    return {
        "largest": math.log2(low.max),
        "normal": math.log2(low.smallest_normal),
        "smallest": math.log2(low.smallest_subnormal),
    }


def short(number: float) -> float | str:
    """Return a number with three digits; what JSON has no number for is text."""
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else str(number)
