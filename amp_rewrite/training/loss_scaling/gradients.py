"""Gradients between the loss and the update: scaled, unscaled and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import CHECK_KEY, UNCLIPPED_KEY, UNSCALED_KEY
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.training.graph.replicas import Groups, cross_replica_sum, groups_of, is_collective
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers.clipping import global_norm_of, norm_before_clipping, unclipped
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
    """Return the scale (float32, shape ()) times the user's gradient of the loss, by default 1."""
    if grad_loss is None:
        return GraphValue(loss.graph, b.expand_like(scale, loss.value))
    wide = b.type_of(grad_loss.value)
    wide = wide if wide.itemsize > scale.dtype.itemsize else scale.dtype
    return GraphValue(loss.graph, b.mul(b.cast(grad_loss.value, wide), b.cast(scale, wide)))


def unscaled(b: Builder, gradient: Raw, reciprocal: ir.Value) -> Raw:
    """Return a gradient times the reciprocal of the loss scale (float32, shape ()).

    The product is float32, or float64 for float64 gradients: float16 could underflow again.
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

    `rows_only`: the update changes only the rows that a sparse gradient has.
    """
    found: Pairs = []
    for gradient, variable in pairs:
        raw = None if gradient is None else unwrap(gradient)
        if raw is not None and UNCLIPPED_KEY not in values_of(raw).meta:
            raw = merged(b, raw, rows_only=rows_only)
        found.append((wrap(graph, raw), variable))
    return found


def is_check(node: ir.Node) -> bool:
    """Return whether a node compares the norm of gradients with the largest number."""
    return CHECK_KEY in node.metadata_props


def finite_and_norm(b: Builder, gradients: Sequence[Raw]) -> tuple[ir.Value, ir.Value]:
    """Return whether all gradients are finite, and their global norm.

    The norm sqrt(sum_i |g_i|^2) is finite only if every element is: squares do not cancel. A norm
    that overflows (in float32, above 1.8e19) counts as not finite too.

    Gradients that were clipped count as they were before. Where a user's arithmetic can hide an
    infinity, the gradients before it are checked too. The results are bool, shape (), and the norm,
    shape (), in the widest type of the gradients: float32 or float64.
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
    """Return whether a norm is finite: bool, shape (), by a node for `is_check`."""
    largest = float(np.finfo(b.type_of(norm).numpy()).max)
    finite = b.less_or_equal(norm, largest)  # false for infinity and for NaN
    node = finite.producer()
    assert node is not None, "a comparison is a node"
    node.metadata_props[CHECK_KEY] = "norm"
    return finite


_BETWEEN = (Part.CLIP, Part.ARITHMETIC, Part.ALL_REDUCE, Part.LOSS_SCALE)
"""The parts of the nodes between compute_gradients and apply_gradients."""


def hidden_infinities(gradients: Iterable[ir.Value]) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the unscaled gradients that arithmetic, such as a division, can hide infinities of.

    Each comes with the groups of shards of the sums after it, in order.
    """
    ends = list(gradients)
    shown, hidden = _unscaled_before(ends, hiding=False), _unscaled_before(ends, hiding=True)
    return {v: groups for v, groups in hidden.items() if v not in shown}


def _unscaled_before(ends: list[ir.Value], *, hiding: bool) -> dict[ir.Value, tuple[Groups, ...]]:
    """Return the unscaled gradients before values; with `hiding` also through nodes that hide."""
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
        if node is None or part_in(node.metadata_props) not in _BETWEEN:
            continue
        if is_collective(node):
            groups = (groups_of(node), *groups)
        operands = node.inputs if hiding else _shown(node)
        left.extend((v, groups) for v in operands if v is not None)
    return groups_before


def _shown(node: ir.Node) -> list[ir.Value | None]:
    """Return the inputs of a node that must be finite if its result is."""
    # ScatterND makes a gradient of IndexedSlices, every one of which it adds.
    shows = has(node, Trait.SHOWS_NONFINITE, Trait.REARRANGES) or is_collective(node)
    if shows or node.op_type == "ScatterND":
        return list(node.inputs)
    return list(node.inputs[:1]) if node.op_type == "Div" else []
