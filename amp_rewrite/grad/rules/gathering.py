"""Gradients of operators that read or write at indices; g is the gradient of the output y.

x is the data, i the indices, u the updates that are written; [i] reads as the operator writes.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, IndexedSlices, Rules
from amp_rewrite.grad.rules.arithmetic import Received, extra_output, known, operands, rank_of
from amp_rewrite.grad.scatter import non_negative, scatter_along, scatter_axis, scatter_nd
from amp_rewrite.graph.names import place

Read = Callable[[ir.Value], ir.Value]
Write = Callable[[ir.Value, ir.Value, str | None], ir.Value]


def gather(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x[.., i, ..]: g added at i along the axis.

    One constant index: g padded with zeros. Axis 0: IndexedSlices(g, i), made dense by the walk
    unless x is a table that the graph does not compute.
    """
    g, (x, indices) = known(gs[0]), operands(node)
    axis, rank = node.attributes.get_int("axis", 0), b.rank(x)
    axis = axis if rank is None else axis % rank
    if x.producer() is not None and b.rank(indices) == 0:
        single = b.ints(indices)
        if single is not None and rank is not None and axis >= 0:
            return [_padded(b, g, x, single[0], axis)]
    flat = b.reshape(non_negative(b, indices, b.dim(x, axis)), [-1])
    if axis == 0:
        rest = b.slice(b.shape(x), [1], [2**63 - 1])
        rows = b.reshape(g, b.concat([b.op("Shape", flat), rest], 0))
        return [IndexedSlices(rows, flat, b.shape(x))]
    rank_of(node, b, x)
    shape = b.shape(x)
    before, behind = b.slice(shape, [0], [axis]), b.slice(shape, [axis + 1], [2**63 - 1])
    lined = b.reshape(g, b.concat([before, b.op("Shape", flat), behind], 0))
    return [b.shaped_like(scatter_axis(b, lined, flat, axis, b.dim(x, axis)), x)]


def _padded(b: Builder, g: ir.Value, x: ir.Value, index: int, axis: int) -> ir.Value:
    """Return g as the slice of x at one index, zeros elsewhere."""
    rank, dims = b.rank(x) or 0, b.dims(x) or ()
    length = b.dim(x, axis)
    static = dims[axis]
    none, other = [0] * axis, [0] * (rank - axis - 1)
    if static is not None:
        first = index % static
        pads = b.constant([*none, first, *other, *none, static - 1 - first, *other])
    else:
        position = b.add(length, index) if index < 0 else b.constant([index])
        left = b.sub(b.sub(length, 1), position)
        head, tail = b.vector(none), b.vector(other)
        pads = b.concat([head, position, tail, head, left, tail], 0)
    return b.shaped_like(b.op("Pad", b.unsqueeze(g, [axis]), pads), x)


def gather_elements(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y[.., j, ..] = x[.., i[.., j, ..], ..]: g added at i along the axis."""
    x, indices = operands(node)
    axis = node.attributes.get_int("axis", 0)
    return [scatter_along(b, x, indices, known(gs[0]), axis)]


def gather_nd(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x at index tuples: g added there. Batch axes become part of the tuples."""
    x, indices = operands(node)
    batch = node.attributes.get_int("batch_dims", 0)
    if batch:
        indices = _with_batch(node, b, indices, batch)
    return [scatter_nd(b, x, indices, known(gs[0]))]


def _with_batch(node: ir.Node, b: Builder, indices: ir.Value, batch: int) -> ir.Value:
    rank, shape = rank_of(node, b, indices), b.shape(indices)
    one_each = b.concat([b.slice(shape, [0], [rank - 1]), b.constant([1])], 0)
    columns: list[ir.Value] = []
    for axis in range(batch):
        positions = b.range(0, b.squeeze(b.dim(indices, axis), [0]))
        lined = b.reshape(positions, [-1 if k == axis else 1 for k in range(rank)])
        columns.append(b.expand(lined, one_each))
    joined = b.concat([*columns, indices], -1)
    lengths = b.dims(indices) or ()
    if lengths and lengths[-1] is not None:
        joined.shape = ir.Shape([*lengths[:-1], lengths[-1] + batch])
    return joined


def compress(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the slices of x (its elements, without an axis) where c: g there, zeros elsewhere."""
    indices = b.reshape(b.op("NonZero", operands(node)[1]), [-1])
    return [_placed(node, b, known(gs[0]), indices)]


def unique(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the slices of x (its elements, without an axis) at indices, an output: g there."""
    return [_placed(node, b, known(gs[0]), extra_output(b, node, 1, ir.DataType.INT64, [None]))]


def _placed(node: ir.Node, b: Builder, g: ir.Value, indices: ir.Value) -> ir.Value:
    """Return zeros of the shape of x with g at different indices along the node's axis, if any."""
    x = operands(node)[0]
    if "axis" in node.attributes:
        axis = node.attributes.get_int("axis", 0)
        dense = scatter_axis(b, g, indices, axis, b.dim(x, axis), unique=True)
        return b.shaped_like(dense, x)
    length = b.reshape(b.size(x), [1])
    return b.reshape_like(scatter_axis(b, g, indices, 0, length, unique=True), x)


def top_k(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y, i = the k largest (smallest) x along an axis and where they are: g at i."""
    if gs[0] is None:
        return [None]
    x, axis = operands(node)[0], node.attributes.get_int("axis", -1)
    indices = node.outputs[1]
    zeros = b.zeros_like(x)
    return [b.shaped_like(b.op("ScatterElements", zeros, indices, gs[0], axis=axis), x)]


def write_elements(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with u written at i along an axis; see `_by_reduction`."""
    axis = node.attributes.get_int("axis", 0)
    indices = operands(node)[1]

    def read(value: ir.Value) -> ir.Value:
        return b.op("GatherElements", value, indices, axis=axis)

    def write(base: ir.Value, updates: ir.Value, reduction: str | None) -> ir.Value:
        written = b.op("ScatterElements", base, indices, updates, axis=axis, reduction=reduction)
        return b.shaped_like(written, base)

    return _by_reduction(node, known(gs[0]), b, read, write)


def write_nd(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with u written at index tuples; see `_by_reduction`."""
    indices = operands(node)[1]

    def read(value: ir.Value) -> ir.Value:
        return b.op("GatherND", value, indices)

    def write(base: ir.Value, updates: ir.Value, reduction: str | None) -> ir.Value:
        return b.shaped_like(b.op("ScatterND", base, indices, updates, reduction=reduction), base)

    return _by_reduction(node, known(gs[0]), b, read, write)


def _by_reduction(node: ir.Node, g: ir.Value, b: Builder, read: Read, write: Write) -> Gradients:
    """Return the gradients of the data and of the updates, by the attribute `reduction`.

    none: g with zeros at i, and g[i] (indices must not repeat, as the standard demands).
    add: g, and g[i].
    mul: g times the product of the updates, and g[i] times x[i] and the product of the other u.
    max, min: g shared evenly among x and the u that equal y.
    """
    x, _, updates = operands(node)
    reduction = node.attributes.get_string("reduction", "none")
    if reduction == "none":
        return [write(g, b.zeros_like(updates), None), None, read(g)]
    if reduction == "add":
        return [g, None, read(g)]
    if reduction == "mul":
        factors = write(b.ones_like(x), updates, "mul")
        return [b.mul(g, factors), None, b.mul(read(g), _of_others(b, x, updates, read, write))]
    y = node.outputs[0]
    if reduction in ("max", "min"):
        kept = b.cast_like(b.equal(x, y), g)
        taken = b.cast_like(b.equal(updates, read(y)), g)
        share = b.div(g, write(kept, taken, "add"))
        return [b.mul(kept, share), None, b.mul(taken, read(share))]
    raise GradientError(
        "a reduction without a gradient",
        where=place(node),
        found=reduction,
        expected="none, add, mul, max or min",
    )


def _of_others(b: Builder, x: ir.Value, updates: ir.Value, read: Read, write: Write) -> ir.Value:
    """Return, for each u, x[i] times the other u that meet there.

    With z zeros among the u of a place and q the product of x and what is not zero: q / u for
    z = 0; q where u = 0 for z = 1; 0 everywhere else.
    """
    is_zero = b.equal(updates, 0)
    safe = b.where(is_zero, b.operand(1, updates), updates)
    zeros = read(write(b.zeros_like(x), b.cast_like(is_zero, x), "add"))
    product = read(write(x, safe, "mul"))
    alone = b.logical_and(is_zero, b.equal(zeros, 1))
    others = b.where(b.equal(zeros, 0), b.div(product, safe), 0)
    return b.where(alone, product, others)


RULES: Rules = {
    "Compress": compress,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": write_elements,
    "ScatterND": write_nd,
    "TopK": top_k,
    "Unique": unique,
}
