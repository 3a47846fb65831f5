"""Values that leave the range of the low type: for certain, or by an estimate."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import Array
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.values.inner_sums import inner_sum, terms_of
from amp_rewrite.values.intervals.interval import Interval, add
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.magnitudes.outliers import Outliers

_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN, Trait.HOLDS)


class Beyond(NamedTuple):
    """How a value leaves the range.

    Attributes:
        reason: CERTAIN_OVERFLOW or LIKELY_OVERFLOW.
        detail: A sentence for the user.
    """

    reason: Reason
    detail: str


def may_leave_range(low: DType) -> bool:
    """Tell whether float32 numbers leave the range of a type: that of bfloat16 is the same."""
    return low.overflow <= FLOAT32.max / 2


def beyond_range(
    type_graph: TypeGraph,
    intervals: Intervals,
    estimates: Estimates,
    outliers: Outliers,
    low: DType,
) -> Mapping[int, Beyond]:
    """Return the float32 values with elements beyond the range of a narrower type, in order.

    Constants, and what only moves them, are the business of KeepOverflows: some may saturate.
    """
    names = type_graph.flat.value_names
    beyond_of: dict[int, Beyond] = {}
    for value in _computed(type_graph, intervals.may_reach(low.overflow)):
        likely = partial(_likely, estimates, outliers, value)
        beyond = _beyond(names[value], intervals[value], likely, low)
        if beyond is not None:
            beyond_of[value] = beyond
    return beyond_of


def beyond_inside(
    type_graph: TypeGraph,
    intervals: Intervals,
    estimates: Estimates,
    outliers: Outliers,
    low: DType,
) -> Mapping[int, Beyond]:
    """Return the nodes with a sum inside, which no output gives, beyond the range of a type."""
    flat, beyond_of = type_graph.flat, dict[int, Beyond]()
    sums = [None if called in flat.functions else inner_sum(called) for called in flat.operators]
    for node, number in enumerate(flat.operator) if any(sums) else ():
        inside = sums[number]
        if inside is None or len(flat.outputs_of(node)) > inside.output:
            continue
        terms = terms_of(flat, node, inside)
        if not terms or not type_graph.is_float32(terms[0]):
            continue
        interval = reduce(add, [intervals[v] for v in terms])
        name = f"the sum inside {flat.node_names[node]}"
        beyond = _beyond(name, interval, partial(_likely_sum, estimates, outliers, terms), low)
        if beyond is not None:
            beyond_of[node] = beyond
    return beyond_of


def beyond_sums(
    type_graph: TypeGraph, outliers: Outliers, adds_low: Container[tuple[str, str]], low: DType
) -> Mapping[int, Beyond]:
    """Return the products whose partial sums are likely to leave the range of a type.

    Args:
        type_graph: The model.
        outliers: What is far larger than the rest of its values.
        adds_low: The operators whose kernels add in the type.
        low: The type.
    """
    flat, beyond_of = type_graph.flat, dict[int, Beyond]()
    asked = [called[:2] in adds_low and has(called, Trait.CONTRACTS) for called in flat.operators]
    for node in [n for n, number in enumerate(flat.operator) if asked[number]]:
        inputs = flat.inputs_of(node)
        reached = outliers.partial_sum(inputs[0], inputs[1]) if len(inputs) > 1 else 0.0
        if reached >= low.overflow:
            name, end = flat.node_names[node], f"{low.name} ends at {low.max:.6g}"
            detail = f"a partial sum of {name} is likely to reach {reached:.2g}, {end}"
            beyond_of[node] = Beyond(Reason.LIKELY_OVERFLOW, detail)
    return beyond_of


def _likely(estimates: Estimates, outliers: Outliers, value: int) -> float:
    """Return the likely largest magnitude of a value; 0 if nothing is known."""
    estimate = estimates[value]
    return max(0.0 if estimate is None else estimate.largest, outliers.peak(value))


def _likely_sum(estimates: Estimates, outliers: Outliers, terms: Sequence[int]) -> float:
    estimate = estimates.total(terms)
    return max(0.0 if estimate is None else estimate.largest, outliers.total_peak(terms))


def _beyond(
    name: str, interval: Interval, likely: Callable[[], float], low: DType
) -> Beyond | None:
    """Return how a value leaves the range of a type, or None."""
    end = f"{low.name} ends at {low.max:.6g}"
    if interval.magnitude < low.overflow:
        return None
    if low.overflow <= interval.reach <= FLOAT32.max:
        detail = f"{name} reaches at least {interval.reach:.4g}, {end}"
        return Beyond(Reason.CERTAIN_OVERFLOW, detail)
    largest = min(likely(), interval.magnitude)
    if largest < low.overflow:
        return None
    return Beyond(Reason.LIKELY_OVERFLOW, f"{name} is likely to reach {largest:.2g}, {end}")


def _computed(type_graph: TypeGraph, concerned: Array) -> Iterator[int]:
    """Yield float32 inputs and results of `concerned` computation: no constants, moved or not."""
    flat, held = type_graph.flat, _moved_constants(type_graph)
    entries = [v for body in flat.bodies for v in body.inputs if not flat.is_initializer(v)]
    values = np.array([*entries, *flat.outputs], np.int64)
    for value in values[concerned[values]].tolist():
        if type_graph.is_float32(value) and value not in held:
            yield value


def _moved_constants(type_graph: TypeGraph) -> set[int]:
    """Return the float32 results of operators that do nothing but move constants."""
    graph, flat = type_graph, type_graph.flat
    moves = [operator(called) in _HANDING_ON for called in flat.operators]
    held: set[int] = set()
    for node in [n for n, number in enumerate(flat.operator) if moves[number]]:
        data = data_of(flat, node)
        if all(v in held or constant_tensor(graph, v) is not None for v in data):
            held.update(v for v in flat.outputs_of(node) if graph.is_float32(v))
    return held
