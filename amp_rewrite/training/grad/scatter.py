"""Add updates into a tensor at indices: the transpose of gathering, in every opset."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.training.builder.builder import Builder

_END = int(np.iinfo(np.int64).max)
_REDUCTION = 16
"""The opset from which ScatterND and ScatterElements can add."""


def can_add(b: Builder) -> bool:
    """Return whether the opset's scatter operators can add."""
    return b.opset >= _REDUCTION


def non_negative(b: Builder, indices: ir.Value, length: ir.Value) -> ir.Value:
    """Return int64 indices counted from the front.

    Args:
        b: The builder.
        indices: Indices of any integer type and shape, counted from the end where negative.
        length: The length of the indexed axis: int64, one element.
    """
    indices = b.cast(indices, ir.DataType.INT64)
    numbers = b.array(indices)
    if numbers is not None and numbers.size and numbers.min() >= 0:
        return indices
    return b.where(b.less(indices, 0), b.add(indices, length), indices)


def scatter_rows(b: Builder, base: ir.Value, indices: ir.Value, rows: ir.Value) -> ir.Value:
    """Return `base` with `rows[i]` added to its row `indices[i]`; indices may repeat.

    Before opset 16 this is a product with one-hot rows, which takes memory for M x N numbers.

    Args:
        b: The builder.
        base: (N, *row).
        indices: (M,) int64, not negative.
        rows: (M, *row).
    """
    if can_add(b):
        added = b.op("ScatterND", base, b.unsqueeze(indices, [1]), rows, reduction="add")
        return b.shaped_like(added, base)
    # Nothing is left to be inferred: there may be no row at all.
    flat_rows = b.reshape_exactly(rows, b.concat([b.shape(indices), b.size_from(base, 1)], 0))
    total = b.matmul(_one_hot(b, indices, b.dim(base, 0), rows), flat_rows)
    return b.shaped_like(b.add(base, b.reshape_like(total, base)), base)


def scatter_along(
    b: Builder, like: ir.Value, indices: ir.Value, updates: ir.Value, axis: int
) -> ir.Value:
    """Return zeros of the shape of `like` with `updates` added along an axis (ScatterElements).

    Args:
        b: The builder.
        like: Has the shape and type of the result.
        indices: Of the shape of `updates`; negative ones count from the end.
        updates: No axis longer than that of `like`.
        axis: The axis that indices run along.
    """
    zeros = b.zeros_like(like)
    if can_add(b):
        total = b.op("ScatterElements", zeros, indices, updates, axis=axis, reduction="add")
        return b.shaped_like(total, like)
    rank = b.rank(like)
    if rank is None:
        raise GradientError(
            "a scatter that adds needs a known rank before opset 16",
            where=f"value {like.name!r}",
            remedy="convert the model with onnx.version_converter",
        )
    axis %= rank
    length = b.dim(like, axis)
    indices = b.unsqueeze(non_negative(b, indices, length), [axis])
    every = b.range(0, b.squeeze(length, [0]))
    every = b.reshape(every, [-1 if k == axis else 1 for k in range(rank + 1)])
    # one_hot[.., n, j, ..] is 1 where indices[.., j, ..] == n
    one_hot = b.cast_like(b.equal(indices, every), updates)
    total = b.reduce_sum(b.mul(one_hot, b.unsqueeze(updates, [axis])), [axis + 1], keepdims=False)
    missing = b.sub(b.shape(like), b.op("Shape", total))
    before = b.sub(missing, missing)
    return b.shaped_like(b.op("Pad", total, b.concat([before, missing], 0)), like)


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

    Args:
        b: The builder.
        updates: (.., M, ..).
        indices: (M,) int64; negative ones count from the end.
        axis: The axis of length M.
        length: The length N of the axis afterwards: int64, one element.
        unique: No index comes twice.

    Returns:
        (.., N, ..).
    """
    rank = b.rank(updates)
    if rank is None:
        raise GradientError(
            "a gradient along one axis needs a known rank",
            where=f"value {updates.name!r}",
            remedy="record the shape in the model's value_info",
        )
    axis %= rank
    if not unique and not can_add(b):
        return _by_product(b, updates, indices, axis, length)
    lengths = [length if k == axis else b.dim(updates, k) for k in range(rank)]
    zeros = b.zeros(b.concat(lengths, 0), b.type_of(updates))
    column = b.reshape(indices, [-1 if k == axis else 1 for k in range(rank)])
    spread = b.expand(column, b.shape(updates))
    reduction = None if unique else "add"
    return b.op("ScatterElements", zeros, spread, updates, axis=axis, reduction=reduction)


def _by_product(
    b: Builder, updates: ir.Value, indices: ir.Value, axis: int, length: ir.Value
) -> ir.Value:
    """Return one-hot columns times the updates, as (.., M, rest) matrices."""
    indices, shape = non_negative(b, indices, length), b.shape(updates)
    rest = b.size_from(updates, axis + 1)
    matrices = b.reshape_exactly(updates, b.concat([b.slice(shape, [0], [axis + 1]), rest], 0))
    if not (b.dims(updates) or {axis: None})[axis]:
        # A batched product over an axis of length 0 is garbage in ONNX Runtime 1.31.1.
        indices = b.concat([indices, b.constant([-1])], 0)
        pads = [0] * (axis + 2) + [0] * axis + [1, 0]
        matrices = b.op("Pad", matrices, b.constant(pads))
    total = b.matmul(_one_hot(b, indices, length, updates), matrices)
    behind = b.slice(shape, [axis + 1], [_END])
    return b.reshape(total, b.concat([b.slice(shape, [0], [axis]), length, behind], 0))


def scatter_nd(b: Builder, like: ir.Value, indices: ir.Value, updates: ir.Value) -> ir.Value:
    """Return zeros of the shape of `like` with updates added at index tuples (undoes GatherND).

    Args:
        b: The builder.
        like: Has the shape and type of the result.
        indices: (.., k) int64; negative ones count from the end.
        updates: (.., *like.shape[k:]).

    Raises:
        GradientError: Before opset 16, k is not known.
    """
    if can_add(b):
        zeros = b.zeros_like(like)
        total = b.op("ScatterND", zeros, indices, updates, reduction="add")
        return b.shaped_like(total, like)
    count = (b.dims(indices) or (None,))[-1]
    if count is None:
        raise GradientError(
            "the length of index tuples has to be known before opset 16",
            where=f"value {indices.name!r}",
            remedy="convert the model with onnx.version_converter",
        )
    row: ir.Value | None = None
    for k in range(count):
        one, length = b.gather(indices, b.constant(k), -1), b.dim(like, k)
        one = non_negative(b, one, length)
        row = one if row is None else b.add(b.mul(row, length), one)
    if row is None:
        return updates
    rows = b.op("ReduceProd", b.slice(b.shape(like), [0], [count]), axes=[0], keepdims=1)
    line = b.reshape(row, [-1])
    flat = b.reshape_exactly(updates, b.concat([b.op("Shape", line), b.size_from(like, count)], 0))
    return b.reshape_like(b.matmul(_one_hot(b, line, rows, like), flat), like)


def _one_hot(b: Builder, indices: ir.Value, length: ir.Value, like: ir.Value) -> ir.Value:
    """Return (N, M): 1 in row `indices[m]` of column m, 0 elsewhere, in the type of `like`.

    OneHot itself has too few kernels in ONNX Runtime.
    """
    every = b.reshape(b.range(0, b.squeeze(length, [0])), [-1, 1])
    return b.cast_like(b.equal(every, indices), like)
