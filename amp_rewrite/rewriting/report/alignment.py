"""Lengths that tensor cores like: advice on products that became low precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.sizes import Sizes
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.report.records import AlignmentRecord

_BYTES = 16
"""Tensor cores read rows of 16 bytes: lengths that are not a multiple are padded, or run on
other units (NVIDIA, "Matrix Multiplication Background User's Guide", section 3,
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/)."""

# operators: those that tensor cores compute as products of matrices.
_PRODUCTS = frozenset({"FusedMatMul", "Gemm", "MatMul"})
# operators: those that tensor cores compute as products of a window and a matrix of channels.
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "FusedConv"})

Lengths = dict[str, int | None]
"""What a length is called -> the length; None if it is not static."""


def misaligned(context: PaintContext, painting: Painting) -> tuple[AlignmentRecord, ...]:
    """Return the static lengths of low products and convolutions that fill no whole rows."""
    graph = context.type_graph
    multiple = _row_multiple(context.low)
    sizes = Sizes(graph.flat)
    concerned = graph.where(lambda kind: kind.operator.op_type in _PRODUCTS | _CONVOLUTIONS)
    nodes = np.unique(graph.node[painting.allow & concerned]).tolist()
    return tuple(
        AlignmentRecord(graph.flat.node_names[node], what, length, multiple)
        for node in nodes
        for what, length in _lengths(graph.flat, sizes, node).items()
        if length is not None and length % multiple
    )


def batch_multiple(context: PaintContext, painting: Painting) -> int:
    """Return what free lengths have to be multiples of for low products to fill whole rows.

    A product by a matrix has the rows of all matrices on its left: static lengths among them help,
    and what they lack is left to the free ones, such as the batch. 1 if that is nothing.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    multiple, sizes = _row_multiple(context.low), Sizes(flat)
    concerned = graph.where(lambda kind: kind.operator.op_type in _PRODUCTS)
    common = 1
    for node in np.unique(graph.node[painting.allow & concerned]).tolist():
        rows = _rows(flat, sizes, node)
        if None in rows:
            static = math.prod(length for length in rows if length is not None)
            common = math.lcm(common, multiple // math.gcd(multiple, static))
    return common


def _rows(flat: FlatGraph, sizes: Sizes, node: int) -> Sequence[int | None]:
    """Return the lengths whose product is the rows of a product by a matrix; else nothing."""
    inputs = flat.inputs_of(node)[:2]
    if len(inputs) < 2:
        return ()
    left, right = map(sizes.shape, inputs)
    if left is None or right is None or len(right) != 2 or len(left) < 2:
        return ()
    return left[1:] if _int(flat, node, "transA", 0) else left[:-1]


def _row_multiple(low: DType) -> int:
    """Return what lengths should be multiples of, in elements of a low type."""
    return _BYTES // low.numpy.itemsize


def _lengths(flat: FlatGraph, sizes: Sizes, node: int) -> Lengths:
    """Return the lengths of the matrices that a product or convolution multiplies."""
    if flat.called(node).op_type in _PRODUCTS:
        return _of_product(flat, sizes, node)
    alone = _int(flat, node, "group", 1) == 1  # groups run on other units
    return _of_convolution(flat, sizes, node) if alone else {}


def _of_product(flat: FlatGraph, sizes: Sizes, node: int) -> Lengths:
    """Return rows, inner length and columns of (..., M, K) x (..., K, N)."""
    inputs = flat.inputs_of(node)[:2]
    if len(inputs) < 2 or ABSENT in inputs:  # an operator of another domain and this name
        return {}
    first, second = map(sizes.shape, inputs)
    lengths: Lengths = {}
    if second is not None and len(second) > 1:
        order = reversed(second[-2:]) if _int(flat, node, "transB", 0) else second[-2:]
        lengths |= zip(("inner length", "columns"), order, strict=True)
    if first is not None and len(first) > 1:
        order = reversed(first[-2:]) if _int(flat, node, "transA", 0) else first[-2:]
        rows, inner = order
        # A matrix on the right makes one product of all rows of all matrices on the left.
        if len(first) == 2 or second is None or len(second) > 2:
            lengths["rows"] = rows
        lengths["inner length"] = lengths.get("inner length") or inner
    return lengths


def _of_convolution(flat: FlatGraph, sizes: Sizes, node: int) -> Lengths:
    """Return the channels of a convolution without groups: its weight is (out, in, ...)."""
    inputs = flat.inputs_of(node)
    weight = sizes.shape(inputs[1]) if len(inputs) > 1 and inputs[1] != ABSENT else None
    if weight is None or len(weight) < 2:
        return {}
    names = ["output channels", "input channels"]
    if flat.called(node).op_type == "ConvTranspose":
        names.reverse()
    return dict(zip(names, weight[:2], strict=True))


def _int(flat: FlatGraph, node: int, name: str, default: int) -> int:
    """Return an attribute; the default where it is left out, a reference, or no integer."""
    attribute = flat.attributes(node).get(name)
    value = None if attribute is None else attribute.value
    return value if isinstance(value, int) else default
