"""Values that leave the range of the low type: for certain, or by an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.intervals.propagate import Intervals
from amp_rewrite.graph.magnitudes.estimates import Estimates
from amp_rewrite.graph.traits import Trait, having, operator, row_of
from amp_rewrite.paint.painting import Reason

_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN, Trait.HOLDS)


class Beyond(NamedTuple):
    """How a value leaves the range.

    Attributes:
        reason: CERTAIN_OVERFLOW or LIKELY_OVERFLOW.
        detail: A sentence for the user.
    """

    reason: Reason
    detail: str


def beyond_range(
    type_graph: TypeGraph, intervals: Intervals, estimates: Estimates, low: DType
) -> Mapping[int, Beyond]:
    """Return the float32 values with elements beyond the range of the low type, in order.

    Constants, and what only moves them, are the business of KeepOverflows: some may saturate.
    """
    if low.overflow > FLOAT32.max / 2:  # bfloat16: its range is that of float32
        return {}
    end, names = f"{low.name} ends at {low.max:.6g}", type_graph.flat.value_names
    found: dict[int, Beyond] = {}
    for value in _computed(type_graph):
        interval = intervals[value]
        if interval.magnitude < low.overflow:
            continue
        if low.overflow <= interval.reach <= FLOAT32.max:
            detail = f"{names[value]} reaches at least {interval.reach:.4g}, {end}"
            found[value] = Beyond(Reason.CERTAIN_OVERFLOW, detail)
            continue
        estimate = estimates[value]
        if estimate is not None and estimate.largest >= low.overflow:
            largest = min(estimate.largest, interval.magnitude)
            detail = f"{names[value]} is likely to reach {largest:.2g}, {end}"
            found[value] = Beyond(Reason.LIKELY_OVERFLOW, detail)
    return found


def _computed(type_graph: TypeGraph) -> Iterator[int]:
    """Yield the float32 inputs and results of computation: no constants, moved or not."""
    graph, flat = type_graph, type_graph.flat
    held: set[int] = set()
    entries = (value for body in flat.bodies for value in body.inputs)
    yield from (v for v in entries if graph.is_float32(v) and not flat.is_initializer(v))
    moves = [operator(called) in _HANDING_ON for called in flat.operators]
    for node, number in enumerate(flat.operator):
        outputs = [v for v in flat.outputs_of(node) if graph.is_float32(v)]
        if not outputs:
            continue
        if moves[number] and all(
            v in held or constant_tensor(graph, v) is not None for v in _data(flat, node)
        ):
            held.update(outputs)
        else:
            yield from outputs


def _data(flat: FlatGraph, node: int) -> list[int]:
    """Return the values that hold the data of a node."""
    data = row_of(flat.called(node)).data
    given = enumerate(flat.inputs_of(node))
    return [v for k, v in given if v != ABSENT and (data is None or k in data)]
