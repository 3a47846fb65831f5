"""Attention and rotary embeddings, of ai.onnx and of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.operation import Operation, Rule

_ROOM = 1.001
"""Weights that are rounded add up to a little more than 1."""


def averaged(*values: Interval) -> Interval:
    """Bound means with weights that add up to 1, or to less: a sink or a mask may take the rest."""
    hull = i.union(*values, i.ZERO)
    return i.between(hull.low * _ROOM, hull.high * _ROOM)


def cached(op: Operation, source: int, past: int) -> Interval:
    """Return what a cache holds: an input, behind what it held before if that is there."""
    new = op.of(source)
    return ((op.of(past) | new) if op.has(past) else new).scattered()


def rotated(x: Interval, cosines: Interval, sines: Interval) -> Interval:
    """Bound pairs turned by angles, and elements beyond the rotary dimension, which stay."""
    turned = i.finite_product(x.magnitude, cosines.magnitude + sines.magnitude)
    return i.symmetric(max(x.magnitude, turned) * _ROOM)


def _attention(op: Operation) -> list[Interval]:
    keys, values = cached(op, 1, 4), cached(op, 2, 5)
    return [averaged(values), keys, values, i.ANY][: op.n_outputs]


RULES: Mapping[str, Rule] = {
    "Attention": _attention,
    "RotaryEmbedding": lambda op: rotated(op.of(0), op.of(1), op.of(2)),
}
"""Operator of ai.onnx -> what its results are bound to be."""
