"""Caches of keys and values that are cast at every step of a decoder, for their types are kept."""

from __future__ import annotations

import re

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.plan.casts import CastPlan

_PAST = re.compile(r"past(_key_values)?", re.IGNORECASE)
_PRESENT = re.compile(r"present(_key_values)?", re.IGNORECASE)
"""What exporters call the two ends of a cache: past_key_values.0.key and present.0.key."""


def ends_beside_cache(context: PaintContext, plan: CastPlan) -> tuple[str, ...] | None:
    """Return the float32 inputs and outputs that are no cache, if a cache is cast at every step.

    A cache is inputs and outputs that pair up as past and present, and have one type.

    Returns:
        Their names; None if there is no such cache, or it is low already.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    ends = [v for v in (*flat.main.inputs, *flat.main.outputs) if graph.is_float32(v)]
    kept = [v for v in ends if v not in context.low_ends and not flat.is_initializer(v)]
    past, present = _named(flat, flat.main.inputs, _PAST), _named(flat, flat.main.outputs, _PRESENT)
    pairs = [(past[key], present[key]) for key in past if key in present]
    cache = {v for pair in pairs if set(pair) <= set(kept) for v in pair}
    if not any(cast.value in cache for cast in plan.casts):
        return None
    return tuple(dict.fromkeys(flat.value_names[v] for v in kept if v not in cache))


def _named(flat: FlatGraph, values: list[int], word: re.Pattern[str]) -> dict[str, int]:
    """Return what is left of the names with a word in them -> the value."""
    names = ((flat.value_names[v], v) for v in values)
    return {word.sub("", name, count=1): v for name, v in names if word.search(name)}
