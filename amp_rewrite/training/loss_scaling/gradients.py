"""Gradients on their way from the loss to the update: scaled, unscaled, merged, multiplied."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.loss_scaling.finite import is_unscaled, mark_unscaled
from amp_rewrite.training.optimizers.clipping import known_norm
from amp_rewrite.training.optimizers.gradient import (
    Raw,
    merged,
    unwrap,
    values_of,
    with_values,
    wrap,
)
from amp_rewrite.training.optimizers.optimizer import Optimizer

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
    mark_unscaled(result)
    return with_values(gradient, result)


def unscaled_times(b: Builder, gradient: Raw, factor: float) -> Raw:
    """Return an unscaled gradient times a number above 0, in one product where possible."""
    values = values_of(gradient)
    node = values.producer() if is_unscaled(values) else None
    if node is None:
        return with_values(gradient, b.shaped_like(b.mul(values, factor), values))
    scaled, reciprocal = node.inputs
    assert scaled is not None, "a product has two operands"
    assert reciprocal is not None, "a product has two operands"
    product = b.mul(scaled, b.mul(reciprocal, factor))
    return with_values(gradient, b.shaped_like(product, values))


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


def multiplied_for(
    inner: Optimizer, b: Builder, graph: TrainingGraph, pairs: Pairs
) -> tuple[Pairs, float]:
    """Return gradients times the number that an update multiplies them by, and this number.

    It is 1 where something is done to the gradients between the two. Equal indices are summed
    before, as they are without a loss scale, so that the sums are the same.
    """
    factor = inner.gradient_factor
    gradients = [unwrap(gradient) for gradient, _ in pairs if gradient is not None]
    if factor == 1 or not all(is_unscaled(values_of(gradient)) for gradient in gradients):
        return pairs, 1.0
    pairs = without_repeated_indices(b, graph, pairs, rows_only=inner.touches_rows_only)
    raw = [None if g is None else unscaled_times(b, unwrap(g), factor) for g, _ in pairs]
    return [(wrap(graph, g), v) for g, (_, v) in zip(raw, pairs, strict=True)], factor
