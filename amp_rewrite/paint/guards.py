"""Guards: what keeps a value away from zero, such as an epsilon that is added to it.

A guard is a bound that holds whatever the model is fed (|x| + eps, Clip), or an element that is
there for no other reason: an addend in a sum whose sign is not known, a choice of Where. What only
moves, scales or takes the root of a guarded value is guarded, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.intervals.propagate import Intervals
from amp_rewrite.graph.traits import Trait, has, row_of


def guards_of(type_graph: TypeGraph, intervals: Intervals) -> Mapping[int, float]:
    """Return value -> the magnitude that keeps it away from zero, of the float32 values with one.

    Args:
        type_graph: The model.
        intervals: What its values are bound to be.
    """
    flat = type_graph.flat
    found: dict[int, float] = {}
    for node, number in enumerate(flat.operator):
        for value in flat.outputs_of(node):
            if not type_graph.is_float32(value):
                continue
            away = intervals[value].away
            guard = away or _guard(flat.operators[number], flat.inputs_of(node), found, intervals)
            if guard:
                found[value] = guard
    return found


def _guard(
    called: Operator, inputs: list[int], found: Mapping[int, float], intervals: Intervals
) -> float:
    """Return what guards the output of a node that is not provably away from zero, or 0."""
    if called.domain != "":
        return 0.0
    data = row_of(called).data
    given = [v for k, v in enumerate(inputs) if v != ABSENT and (data is None or k in data)]
    known = [found.get(value, 0.0) or intervals[value].away for value in given]
    guards = [guard for guard in known if guard]
    if not guards:
        return 0.0
    if has(called, Trait.MOVES, Trait.CHANGES_SIGN):
        return min(guards)
    # operators: besides sums, those whose result is an operand where the others are zero.
    if has(called, Trait.ADDS) or called.op_type in ("Max", "Sub"):
        return min(guards)
    if called.op_type == "Sqrt":
        return math.sqrt(guards[0])
    return math.prod(guards) if called.op_type == "Mul" and len(guards) == len(given) else 0.0
