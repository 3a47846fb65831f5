"""Guards: what keeps a value away from zero, such as an epsilon that is added to it.

A guard is a bound that holds whatever the model is fed (|x| + eps, Clip), or an element that is
there for no other reason: an addend in a sum whose sign is not known, a choice of Where. The 1 of
1 - Sigmoid(x) guards nothing: the difference ends at zero. What only moves, scales or takes the
root of a guarded value is guarded, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, is_one, row_of
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.propagate import Intervals

_ROUNDED = 2.0**-18
"""How far beyond an end bounds may be, relative to the other one, for the roundings of float32."""


def guards_of(type_graph: TypeGraph, intervals: Intervals) -> Mapping[int, float]:
    """Return float32 value -> the magnitude that keeps it away from zero, of those with one."""
    flat = type_graph.flat
    guard_of: dict[int, float] = {}
    hollow: set[int] = set()
    for node, number in enumerate(flat.operator):
        for value in flat.outputs_of(node):
            if not type_graph.is_float32(value):
                continue
            called, inputs = flat.operators[number], flat.inputs_of(node)
            if _is_quotient(called, inputs, intervals) or _hands_on(called, inputs, hollow):
                hollow.add(value)
                continue
            operand_guards = {
                v: guard_of.get(v) or intervals[v].away
                for v in inputs
                if v != ABSENT and v not in hollow
            }
            guard = intervals[value].away
            if not guard and not (_sums(called) and _ends_at_zero(intervals[value])):
                guard = _guard(called, inputs, operand_guards)
            if guard:
                guard_of[value] = guard
    return guard_of


def _is_quotient(called: Operator, inputs: list[int], intervals: Intervals) -> bool:
    """Tell whether a value is away from zero only because its divisor cannot be infinite.

    1 / Sqrt(length) is at least 3e-10, for lengths are 64-bit integers; that guards nothing.
    """
    # operators: those that divide, and by which input.
    divisor = {"Div": 1, "Reciprocal": 0}.get(called.op_type) if called.domain == "" else None
    if divisor is None or len(inputs) <= divisor or intervals[inputs[divisor]].is_point:
        return False
    return divisor == 0 or intervals[inputs[0]].away >= 1


def _hands_on(called: Operator, inputs: list[int], hollow: set[int]) -> bool:
    """Tell whether a value is away from zero only because such a quotient is."""
    passes = has(called, Trait.MOVES, Trait.CHANGES_SIGN, Trait.CASTS, Trait.MULTIPLIES)
    # The root leaves zero where it is, too.
    return (passes or called.op_type == "Sqrt") and not hollow.isdisjoint(inputs)


def _sums(called: Operator) -> bool:
    return has(called, Trait.ADDS) or is_one(called, "Sub")


def _ends_at_zero(interval: Interval) -> bool:
    """Tell whether bounded numbers reach zero and no further, as 1 - Sigmoid(x) does."""
    least, most = sorted((abs(interval.low), abs(interval.high)))
    return least <= _ROUNDED * most < math.inf


def _guard(called: Operator, inputs: list[int], guard_of: Mapping[int, float]) -> float:
    """Return what guards the output of a node that is not provably away from zero, or 0."""
    if called.domain != "":
        return 0.0
    data = row_of(called).data
    operands = [v for k, v in enumerate(inputs) if v != ABSENT and (data is None or k in data)]
    guards = [guard_of[value] for value in operands if guard_of.get(value)]
    if not guards:
        return 0.0
    if has(called, Trait.MOVES, Trait.CHANGES_SIGN):
        return min(guards)
    # Besides sums, one whose result is an operand where the others are zero.
    if _sums(called) or called.op_type == "Max":
        return min(guards)
    if called.op_type == "Sqrt":
        return math.sqrt(guards[0])
    return math.prod(guards) if called.op_type == "Mul" and len(guards) == len(operands) else 0.0
