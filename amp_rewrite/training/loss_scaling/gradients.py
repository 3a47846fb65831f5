"""Gradients on their way from the loss to the update: scaled, unscaled, checked, multiplied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import CHECK_KEY, UNSCALED_KEY
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.training.graph.replicas import Groups, cross_replica_sum, groups_of, is_collective
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers.clipping import (
    global_norm_of,
    known_norm,
    norm_before_clipping,
    unclipped,
)
from amp_rewrite.training.optimizers.gradient import (
    Raw,
    merged,
    unwrap,
    values_of,
    with_values,
    wrap,
)

Pairs = list[tuple[Any, State]]


def scaled_seed(
    b: Builder, loss: GraphValue, scale: Any, grad_loss: GraphValue | None
) -> GraphValue:
    """Return what arrives at the loss: the scale, times the user's gradient.

    `scale` is float32, shape (); no `grad_loss` is ones.
    """
    if grad_loss is None:
        return GraphValue(loss.graph, b.expand_like(scale, loss.value))
    wide = b.type_of(grad_loss.value)
    wide = wide if wide.itemsize > scale.dtype.itemsize else scale.dtype
    return GraphValue(loss.graph, b.mul(b.cast(grad_loss.value, wide), b.cast(scale, wide)))


def unscaled(b: Builder, gradient: Raw, reciprocal: ir.Value) -> Raw:
    """Return a gradient times the reciprocal of the loss scale.

    Indices of a sparse one are kept; `reciprocal` is float32, shape ().

    Returns:
        The gradient in float32; in float64 if it was: what underflows in float16 must not be
        rounded to it again.
    """
    values = values_of(gradient)
    dtype = ir.DataType.DOUBLE if b.type_of(values).itemsize > 4 else ir.DataType.FLOAT
    product = b.mul(b.cast(values, dtype), b.cast(reciprocal, dtype))
    result = b.shaped_like(product, values)
    result.meta[UNSCALED_KEY] = True
    return with_values(gradient, result)


def without_repeated_indices(
    b: Builder, graph: TrainingGraph, pairs: Pairs, *, rows_only: bool
) -> Pairs:
    """Return gradients whose indices do not repeat, as check and update both need them.

    `rows_only` is for an update that changes only the rows that a sparse gradient has.
    """
    raw = [None if g is None else unwrap(g) for g, _ in pairs]
    if known_norm([g for g in raw if g is not None]) is not None:
        return pairs
    raw = [None if g is None else merged(b, g, rows_only=rows_only) for g in raw]
    return [(wrap(graph, g), variable) for g, (_, variable) in zip(raw, pairs, strict=True)]


def is_check(node: ir.Node) -> bool:
    """Return whether a node decides whether gradients are finite by their norm."""
    return CHECK_KEY in node.metadata_props


def finite_and_norm(b: Builder, gradients: Sequence[Raw]) -> tuple[ir.Value, ir.Value]:
    """Return whether all gradients are finite, and their global norm.

    The norm sqrt(sum_i |g_i|^2) is finite only if every element is: squares are not negative, so
    that nothing cancels. It is not finite either if the sum overflows, in float32 at a norm of
    1.8e19: such a step counts as not finite too.

    The norm that `clip_by_global_norm` has computed is used where there is one. Gradients that
    `clip_by_value` has limited count as they were before it; where a user's arithmetic may hide an
    infinity otherwise, the gradients before it are checked besides.

    Args:
        b: Adds the nodes.
        gradients: At least one, in float32 or float64: unscaled, reduced over shards. Values of
            equal indices of a sparse one are summed first.

    Returns:
        bool, shape (); and the norm, shape (), in the widest type of the gradients.
    """
    sources = [unclipped(g) for g in gradients]
    norm = norm_before_clipping(b, gradients)
    finite = _checked(b, norm)
    hidden = hidden_infinities(values_of(g) for g in sources)
    for path in dict.fromkeys(hidden.values()):
        other = global_norm_of(b, [v for v, groups in hidden.items() if groups == path])
        for groups in path:
            other = cross_replica_sum(b, other, groups)
        finite = b.op("And", finite, _checked(b, other))
    return finite, norm


def _checked(b: Builder, norm: ir.Value) -> ir.Value:
    """Return whether a norm is finite: bool, shape (), by a node that `is_check` knows."""
    largest = float(np.finfo(b.type_of(norm).numpy()).max)
    finite = b.less_or_equal(norm, largest)  # false for infinity and for NaN
    node = finite.producer()
    assert node is not None, "a comparison is a node"
    node.metadata_props[CHECK_KEY] = "norm"
    return finite


_BETWEEN = (Part.CLIP, Part.ARITHMETIC, Part.ALL_REDUCE, Part.LOSS_SCALE)
"""Where nodes between compute_gradients and apply_gradients belong."""


def hidden_infinities(gradients: Iterable[ir.Value]) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the unscaled gradients that may be infinite while what is made of them is finite.

    `clip_by_value` makes a number of an infinity, and so does a division by it; sums, products and
    the other ways to clip make NaN.

    Returns:
        Unscaled gradient -> the groups of shards that its effects were summed over, in the order of
        the sums.
    """
    ends = list(gradients)
    shown, hidden = _unscaled_before(ends, hiding=False), _unscaled_before(ends, hiding=True)
    return {v: groups for v, groups in hidden.items() if v not in shown}


def _unscaled_before(ends: list[ir.Value], *, hiding: bool) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the unscaled gradients before values, through nodes that hide too if `hiding`."""
    groups_before: dict[ir.Value, tuple[Groups, ...]] = {}
    left: list[tuple[ir.Value, tuple[Groups, ...]]] = [(value, ()) for value in ends]
    seen: set[ir.Value] = set()
    while left:
        value, groups = left.pop()
        if value in seen:
            continue
        seen.add(value)
        if UNSCALED_KEY in value.meta:
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
    shows = has(node, Trait.SHOWS_NONFINITE, Trait.REARRANGES) or is_collective(node)
    if shows or node.op_type == "ScatterND":
        return list(node.inputs)
    return list(node.inputs[:1]) if node.op_type == "Div" else []
