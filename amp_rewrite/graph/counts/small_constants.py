"""Small constants, also behind operators that only move their elements."""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph, Tensor
from amp_rewrite.graph.traits import Trait, has, row_of

LONGEST = 4096
"""Elements of the longest constant that is looked at: frequencies or slopes, not a weight."""


def constant_elements(flat: FlatGraph, value: int) -> Array | None:
    """Return the numbers of which a value consists, if a small constant says so, or None.

    Which of them are where, and how often, is not told.
    """
    while not flat.is_initializer(value):
        node = flat.producer[value]
        if node == ABSENT:
            return None
        called = flat.called(node)
        if has(called, Trait.HOLDS):
            return _numbers(_held(flat, node))
        if not has(called, Trait.MOVES, Trait.CASTS) or row_of(called).data != (0,):
            return None
        value = next(iter(flat.inputs_of(node)), ABSENT)  # SequenceEmpty reads nothing
        if value == ABSENT:
            return None
    overridable = flat.ir_version >= FIRST_IR_WITH_OVERRIDES and flat.is_input(value)
    return None if overridable or value in flat.bound else _numbers(flat.initializer(value))


def _held(flat: FlatGraph, node: int) -> Tensor | None:
    if flat.called(node).op_type == "ConstantOfShape":
        fill = flat.attributes(node).get("value")
        return None if fill is None else fill.value
    return flat.held(node)


def _numbers(tensor: Tensor | None) -> Array | None:
    if tensor is None or tensor.size > LONGEST:
        return None
    elements = tensor.numpy()
    return elements.astype(np.float64) if elements.dtype.kind in "biuf" else None
