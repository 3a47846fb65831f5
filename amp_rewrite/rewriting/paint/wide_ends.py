"""Graph inputs and outputs that stay float32 though they may give up their type.

They are an input of which the model makes an angle, an index or a count, one from which it takes
numbers as large as the input itself, and a state that goes from call to call.

Evidence: the time 998.39 as a float16 input becomes 998.5, and the features of its angle are 1.6 %
off without it, 0.1 % with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.keep import Match
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, MOVED, Worklist
from amp_rewrite.rewriting.paint.passes.keep_carried import carried_states
from amp_rewrite.rewriting.paint.passes.keep_demands import demanded_inputs
from amp_rewrite.values.counts.find_demands import ANGLE, COORDINATES, JUMP, PLACE

_MADE = {
    ANGLE: "an angle",
    JUMP: "an index, or a step,",
    COORDINATES: "coordinates",
    PLACE: "a place",
}
"""The demand on an input, in words."""


def wide_ends(context: PaintContext, ends: AbstractSet[int]) -> dict[int, str]:
    """Return those of some inputs and outputs whose digits count, each with the reason.

    One that a node demands is none if the user allows that node.
    """
    found, m = dict[int, str](), context.values.match
    if not ends or context.lists.is_unsafe or context.only_low:
        return found

    def keep(value: int, node: int, why: str) -> None:
        if not any(context.is_allowed(v) for v in m.graph.vertices_of(node)):
            remedy = f"--allow-node {m.name(node)} makes it {m.low.name}"
            found.setdefault(value, f"{why}; {remedy}")

    names = m.flat.value_names
    for state in carried_states(m, named=context.given is not None):
        told = (
            f"arithmetic alone makes {names[state.output]} of {names[state.input]}, as of a state"
        )
        keep(state.input, state.nodes[0], told)
        keep(state.output, state.nodes[0], told)
    for value, demand in demanded_inputs(m, context).items():
        keep(value, m.graph.nodes[demand.vertex], f"{demand.name} makes {_MADE[demand.noun]} of it")
    grouped = {m.graph.nodes[v] for fused in context.groups for v in fused.core}
    for value in ends & {*m.flat.main.inputs}:
        for node in _normalizing(m, value, grouped):
            keep(value, node, f"{m.name(node)} takes from it what is as large as it is")
    return {v: why for v, why in found.items() if v in ends}


def _normalizing(m: Match, value: int, grouped: set[int]) -> Iterator[int]:
    """Yield the nodes that take numbers from an input that are as large as it is.

    A constant is one if rounding takes 5 % of what remains, which is around 1 once it is scaled. So
    is a mean of the input, unless it belongs to a layer normalization, whose inputs are features.
    """
    least, todo = 0.05 / m.low.epsilon, Worklist(value, most=FARTHEST)
    for v in todo:
        for node in m.readers(v):
            if _takes_own(m, node, v) and node not in grouped:
                yield node
            elif m.is_a(node, "BatchNormalization"):
                mean, variance = (m.numbers(w) for w in m.read(node)[3:5])
                is_known = mean is not None and variance is not None
                if is_known and (np.abs(mean) > least * np.sqrt(np.abs(variance))).any():
                    yield node
            elif m.op(node) in ADDED:
                rest = _rest(m, node)
                if rest is not None and rest > least:
                    yield node
            elif m.factor(node) is not None or m.op(node) in MOVED:
                todo.add(m.flat.outputs_of(node))


def _takes_own(m: Match, node: int, value: int) -> bool:
    """Tell whether a node takes from a value others of its elements, or a mean or end of them."""
    if not m.is_a(node, "Sub", "Div"):
        return False
    others, ahead = [w for w in m.read(node) if w != value], m.readers(m.made(node))
    is_met = all(
        m.source(w, MOVED, first=True) == m.source(value, MOVED, first=True) for w in others
    )
    if others and is_met:
        return m.is_a(node, "Sub") or any(m.op(n) in ADDED | {"Log"} for n in ahead)
    makers = [m.maker(m.source(w)) for w in others]
    return any(
        m.has(n, Trait.SUMS_UP, Trait.AVERAGES) or m.is_a(n, "ReduceMin", "ReduceMax")
        for n in makers
        if value in [m.source(w) for w in m.data(n)]
    )


def _rest(m: Match, node: int) -> float | None:
    """Return how large a constant that a node adds is beside what remains, once that is scaled."""
    offsets = [n for v in m.read(node) if (n := m.numbers(v)) is not None]
    if len(offsets) != 1:
        return None
    largest, value = np.abs(offsets[0]).astype(np.float64), m.made(node)
    while len(readers := m.readers(value)) == 1:
        (reader,) = readers
        scaled = m.factor(reader)
        numbers = None if scaled is None else m.numbers(scaled[1])
        if numbers is None or numbers.size not in (1, largest.size):
            break
        by = np.abs(numbers.reshape(-1)).astype(np.float64)
        largest = largest.reshape(-1) / by if m.is_a(reader, "Div") else largest.reshape(-1) * by
        value = m.made(reader)
    return float(largest.max())
