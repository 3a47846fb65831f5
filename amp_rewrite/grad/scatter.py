"""Add updates into a tensor at indices: the transpose of gathering."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder


def non_negative(b: Builder, indices: ir.Value, length: ir.Value) -> ir.Value:
    """Return int64 indices counted from the front; negative ones count from the end of `length`."""
    indices = b.cast(indices, ir.DataType.INT64)
    numbers = b.array(indices)
    if numbers is not None and numbers.size and numbers.min() >= 0:
        return indices
    return b.where(b.less(indices, 0), b.add(indices, length), indices)


def scatter_rows(b: Builder, base: ir.Value, indices: ir.Value, rows: ir.Value) -> ir.Value:
    """Return `base`, (N, *row), with `rows[i]` added to its row `indices[i]`; indices may repeat.

    The indices are (M,) int64, not negative.
    """
    added = b.op("ScatterND", base, b.unsqueeze(indices, [1]), rows, reduction="add")
    return b.shaped_like(added, base)


def scatter_along(
    b: Builder, like: ir.Value, indices: ir.Value, updates: ir.Value, axis: int
) -> ir.Value:
    """Return zeros of the shape of `like` with `updates` added along an axis (ScatterElements)."""
    zeros = b.zeros_like(like)
    total = b.op("ScatterElements", zeros, indices, updates, axis=axis, reduction="add")
    return b.shaped_like(total, like)


def scatter_axis(
    b: Builder,
    updates: ir.Value,
    indices: ir.Value,
    axis: int,
    length: ir.Value,
    *,
    unique: bool = False,
) -> ir.Value:
    """Return zeros with the slices of `updates` along an axis added at indices (undoes Gather).

    Updates are (.., M, ..), indices (M,), and the result (.., N, ..), with N = `length`. With
    `unique`, no index comes twice.
    """
    rank = b.rank(updates)
    if rank is None:
        raise GradientError(
            "a gradient along one axis needs a known rank",
            where=f"value {updates.name!r}",
            remedy="record the shape in the model's value_info",
        )
    axis %= rank
    lengths = [length if k == axis else b.dim(updates, k) for k in range(rank)]
    zeros = b.zeros(b.concat(lengths, 0), b.type_of(updates))
    column = b.reshape(indices, [-1 if k == axis else 1 for k in range(rank)])
    spread = b.expand(column, b.shape(updates))
    reduction = None if unique else "add"
    return b.op("ScatterElements", zeros, spread, updates, axis=axis, reduction=reduction)


def scatter_nd(b: Builder, like: ir.Value, indices: ir.Value, updates: ir.Value) -> ir.Value:
    """Return zeros of the shape of `like` with updates added at index tuples (undoes GatherND)."""
    zeros = b.zeros_like(like)
    total = b.op("ScatterND", zeros, indices, updates, reduction="add")
    return b.shaped_like(total, like)
