"""Take the loss scale out of gradients again."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.loss_scaling.hidden import is_unscaled, mark_unscaled
from amp_rewrite.optimizers.gradient import Raw, values_of, with_values


def unscaled(b: Builder, gradient: Raw, reciprocal: ir.Value) -> Raw:
    """Return a gradient times the reciprocal of the loss scale.

    Args:
        b: Adds the nodes.
        gradient: Dense or sparse, in any floating-point type; its indices are kept.
        reciprocal: 1 / loss scale: float32, shape ().

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
    """Return an unscaled gradient times a number, in one product if nothing else was done to it.

    Args:
        b: Adds the nodes.
        gradient: What `unscaled` returned, or what was made of it.
        factor: Above 0.
    """
    values = values_of(gradient)
    node = values.producer() if is_unscaled(values) else None
    if node is None:
        return with_values(gradient, b.shaped_like(b.mul(values, factor), values))
    scaled, reciprocal = node.inputs
    assert scaled is not None, "a product has two operands"
    assert reciprocal is not None, "a product has two operands"
    product = b.mul(scaled, b.mul(reciprocal, factor))
    return with_values(gradient, b.shaped_like(product, values))
