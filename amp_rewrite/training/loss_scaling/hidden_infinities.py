"""Infinities that what is done to gradients before they are applied would hide from the check."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import UNSCALED_KEY
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.training.graph.replicas import Groups, groups_of, is_collective
from amp_rewrite.training.optimizers.gradient import parts_of

_BETWEEN = (Part.CLIP, Part.ARITHMETIC, Part.ALL_REDUCE, Part.LOSS_SCALE)
"""Where nodes between compute_gradients and apply_gradients belong."""


def mark_unscaled(value: ir.Value) -> None:
    """Take note that a value is a gradient as the backward pass leaves it, unscaled."""
    value.meta[UNSCALED_KEY] = True


def is_unscaled(value: ir.Value) -> bool:
    """Return whether `mark_unscaled` has seen a value."""
    return UNSCALED_KEY in value.meta


def hidden_infinities(gradients: Iterable[ir.Value]) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the unscaled gradients that may be infinite while what is made of them is finite.

    `clip_by_value` makes a number of an infinity, and so does a division by it; sums, products and
    the other ways to clip make NaN.

    Returns:
        Unscaled gradient -> the groups of shards that its effects were summed over, in the order of
        the sums.
    """
    ends = list(gradients)
    shown = _before(ends, is_unscaled, hiding=False)
    hidden = _before(ends, is_unscaled, hiding=True)
    return {v: groups for v, groups in hidden.items() if v not in shown}


def sums_over_losses(gradients: Iterable[ir.Value]) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return, as `hidden_infinities` does, the losses' gradients that gradients were made of."""
    return _before(list(gradients), lambda value: parts_of(value) is not None, hiding=True)


def _before(
    ends: list[ir.Value], wanted: Callable[[ir.Value], bool], *, hiding: bool
) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the wanted values before values, through nodes that hide too if `hiding`."""
    groups_before: dict[ir.Value, tuple[Groups, ...]] = {}
    left: list[tuple[ir.Value, tuple[Groups, ...]]] = [(value, ()) for value in ends]
    seen: set[ir.Value] = set()
    while left:
        value, groups = left.pop()
        if value in seen:
            continue
        seen.add(value)
        if wanted(value):
            groups_before[value] = groups
            continue
        node = value.producer()
        if node is None or part_of(node) not in _BETWEEN:
            continue
        if is_collective(node):
            groups = (groups_of(node), *groups)
        operands = node.inputs if hiding else _shown(node)
        left.extend((v, groups) for v in operands if v is not None)
    return groups_before


def _shown(node: ir.Node) -> list[ir.Value | None]:
    """Return the inputs of a node that its result is finite only with."""
    # ScatterND makes a gradient of IndexedSlices, every one of which it adds.
    if has(node, Trait.SHOWS_NONFINITE, Trait.REARRANGES) or is_collective(node):
        return list(node.inputs)
    if node.op_type == "ScatterND":
        return list(node.inputs)
    return list(node.inputs[:1]) if node.op_type == "Div" else []
