"""Sum the gradients that reach one value."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradient, IndexedSlices
from amp_rewrite.training.grad.scatter import scatter_rows


def accumulate(b: Builder, parts: Sequence[Gradient], value: ir.Value, *, sparse: bool) -> Gradient:
    """Return the sum of gradients in the type of `value`, added in the widest type among them.

    The sum is IndexedSlices if it may be, `sparse`, and all parts are.
    """
    if len(parts) == 1 and isinstance(parts[0], ir.Value):
        return b.cast_like(parts[0], value)
    slices = [p for p in parts if isinstance(p, IndexedSlices)]
    dense = [p for p in parts if isinstance(p, ir.Value)]
    if slices and not dense and sparse:
        return _concatenated(b, slices, value)
    total = b.cast_like(_sum(b, dense, value), value) if dense else b.zeros_like(value)
    if slices:
        rows = _concatenated(b, slices, value)
        total = scatter_rows(b, total, rows.indices, rows.values)
    return b.shaped_like(total, value)


def _sum(b: Builder, parts: Sequence[ir.Value], value: ir.Value) -> ir.Value:
    if len(parts) == 1:
        return parts[0]
    types = [b.type_of(v) for v in (*parts, value)]
    widest = max(types, key=lambda t: t.itemsize)
    wide = [b.cast(p, widest) for p in parts]
    return b.add(wide[0], wide[1]) if len(wide) == 2 else b.op("Sum", *wide)


def _concatenated(b: Builder, parts: Sequence[IndexedSlices], value: ir.Value) -> IndexedSlices:
    return IndexedSlices(
        b.cast_like(b.concat([p.values for p in parts], 0), value),
        b.concat([p.indices for p in parts], 0),
        parts[0].dense_shape,
    )
