"""Graph inputs and outputs that stay float32 though they may give up their type.

Rounding at the door is no better than rounding inside: an input of which the model makes an angle,
an index or a count, one from which it takes numbers as large as the input itself, and a state that
goes from call to call.

Evidence: the time 998.39 as a float16 input becomes 998.5, and the features of its angle are 1.6 %
off without it, 0.1 % with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.keep import Match
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, MOVED, Worklist
from amp_rewrite.rewriting.paint.passes.keep_carried import carried_states
from amp_rewrite.rewriting.paint.passes.keep_demands import demanded_inputs

_NORMALIZERS = ("InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization")


def wide_ends(context: PaintContext) -> dict[int, str]:
    """Return the ends of `low_ends` that stay float32, each with what the model makes of it."""
    found, m = dict[int, str](), context.values.match
    if not context.low_ends or context.lists.is_unsafe or context.only_low:
        return found
    names = m.flat.value_names
    for state in carried_states(m):
        found[state.input] = f"it goes back in from the output {names[state.output]}"
        found[state.output] = f"it goes back in as the input {names[state.input]}"
    for value, demand in demanded_inputs(m, context).items():
        if not context.is_allowed(demand.vertex):
            found.setdefault(value, f"the model makes of it the {demand.noun} of {demand.name}")
    for value in context.low_ends.intersection(m.flat.main.inputs):
        node = next(_normalizing(m, value), None)
        if node is not None and not any(context.is_allowed(v) for v in m.graph.vertices_of(node)):
            found.setdefault(value, f"{m.name(node)} normalises it")
    return {v: why for v, why in found.items() if v in context.low_ends}


def _normalizing(m: Match, value: int) -> Iterator[int]:
    """Yield the nodes that take numbers from an input that are as large as it is.

    Nothing says so of a normalization with constants, unless what it takes away is so large beside
    what remains, which is around 1, that rounding takes 5 % of that.
    """
    least, todo = 0.05 / m.low.epsilon, Worklist(value, most=FARTHEST)
    for v in todo:
        for node in m.readers(v):
            scaled, moved = m.factor(node), m.op(node) in MOVED
            if m.is_a(node, *_NORMALIZERS) or _takes_mean(m, node, v):
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
            elif scaled is not None or moved:
                todo.add(m.flat.outputs_of(node))


def _takes_mean(m: Match, node: int, value: int) -> bool:
    """Tell whether a node takes from a value a mean or an end of its own elements."""
    others = [w for w in m.read(node) if w != value] if m.is_a(node, "Sub") else []
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
