"""Constants that a rewritten model stores in both types, for two things read them differently."""

from __future__ import annotations

from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight
from amp_rewrite.rewriting.report.gains import bytes_added
from amp_rewrite.rewriting.report.records import TwiceRecord

LARGE = 1024
"""Elements from which on a constant that is stored twice is worth a warning where a file grows."""


def stored_twice(flat: FlatGraph, plan: CastPlan) -> list[TwiceRecord]:
    """Return the constants that are stored in both types, the largest first."""
    twice = [weight for weight in plan.weights if weight.keep_float32]
    records = [
        TwiceRecord(
            name=flat.value_names[weight.value],
            bytes_added=weight.tensor.size * weight.dtype.numpy.itemsize,
            low_reader=_name(flat, next((use.node for use in weight.uses), ABSENT)),
            float32_reader=_float32_reader(flat, weight),
        )
        for weight in twice
    ]
    return sorted(records, key=lambda record: -record.bytes_added)


def growth_warning(flat: FlatGraph, plan: CastPlan) -> str | None:
    """Return what is to be said where the file grows by large constants that are stored twice."""
    if not any(w.keep_float32 and w.tensor.size >= LARGE for w in plan.weights):
        return None
    added = bytes_added(plan)
    if added <= 0:
        return None
    twice = stored_twice(flat, plan)
    first = twice[0]
    count = f"{len(twice)} weights are" if len(twice) > 1 else "1 weight is"
    return (
        f"the file grows by {added:,} bytes: {count} stored in both types, first {first.name}, "
        f"which {first.low_reader} reads low and {first.float32_reader} as float32; "
        f"--deny-node {first.low_reader} keeps it in float32 alone"
    )


def _float32_reader(flat: FlatGraph, weight: PlannedWeight) -> str:
    """Return what reads a constant as float32: a node, or the caller if it is an output."""
    low = {(use.node, use.index) for use in weight.uses}
    slots = flat.uses(weight.value)
    readers = (flat.reader(s) for s in slots if (flat.reader(s), flat.index(s)) not in low)
    return _name(flat, next(readers, ABSENT))


def _name(flat: FlatGraph, node: int) -> str:
    return "the caller" if node == ABSENT else flat.node_names[node]
