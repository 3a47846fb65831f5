"""Products whose sums are accumulated in the 16-bit type, by an Adder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, FLOAT64
from amp_rewrite.numerics.emulate.adder import (
    Adder,
    known_shape,
    length_of,
    operands_of,
    rank_of,
    round_doubles,
)
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

END = np.iinfo(np.int64).max


def matmul(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Cut the last axis of A and the last but one of B."""
    a, b = operands_of(node)
    axis: int | ir.Value = -2
    if (rank_of(b) or 0) < 2:  # not known, or 1
        rank = nodes.add("Shape", [nodes.add("Shape", [b])])
        axis = nodes.add("Max", [nodes.add("Sub", [rank, nodes.ints(2)]), nodes.ints(0)])
    return adder.add_up(nodes, [(a, -1), (b, axis)], length_of(a, -1), _product)


def _product(nodes: NodeCollector, parts: Sequence[ir.Value]) -> ir.Value:
    return nodes.add("MatMul", parts)


def gemm(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Return alpha * A B + beta * C; the factors are applied to the finished sum."""
    a, b = operands_of(node)
    flags = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
    length = length_of(a, 0 if flags[0] else 1) or length_of(b, 1 if flags[1] else 0)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    begin = bias if adder.rounds_once and _begins(node, flags) else None
    a = nodes.add("Transpose", [a]) if flags[0] else a
    b = nodes.add("Transpose", [b]) if flags[1] else b
    total = adder.add_up(nodes, [(a, 1), (b, 0)], length, _product, begin)
    if begin is not None:
        return total
    if adder.rounds_once and bias is not None:  # once, with beta * C rounded before
        alpha = nodes.number(node.attributes.get_float("alpha", 1.0))
        product = nodes.add("Mul", [total, adder.round(nodes, alpha)])
        terms = (product, _scaled(nodes, bias, node, "beta", adder))
        sum_ = nodes.add("Add", [nodes.cast(term, FLOAT64.ir) for term in terms])
        return nodes.cast(round_doubles(nodes, sum_, adder.dtype), FLOAT32.ir)
    total = _scaled(nodes, total, node, "alpha", adder)
    if bias is not None:
        total = nodes.add("Add", [total, _scaled(nodes, bias, node, "beta", adder)])
    return adder.round(nodes, total)


def _begins(node: ir.Node, flags: Sequence[int]) -> bool:
    """Return whether the kernel for Arm begins the sums of a Gemm with C.

    It does for one number of each column, where nothing is scaled or transposed.
    """
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    shape = None if bias is None else known_shape(bias)
    scaled = any(node.attributes.get_float(name, 1.0) != 1 for name in ("alpha", "beta"))
    if shape is None or scaled or any(flags):
        return False
    columns = length_of(operands_of(node)[1], 1)
    return shape in ([columns], [1, columns])


def _scaled(
    nodes: NodeCollector, value: ir.Value, node: ir.Node, name: str, adder: Adder
) -> ir.Value:
    attribute = node.attributes.get(name)
    if attribute is None:
        return value
    factor = nodes.number(attribute.as_float())
    if adder.order is None:
        return nodes.add("Mul", [value, factor])
    return adder.round(nodes, nodes.add("Mul", [value, adder.round(nodes, factor)]))


def conv(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Cut out the windows, (N, group, terms, places), and multiply by the weight as a matrix."""
    data, weight = operands_of(node)
    sizes = filter_sizes(node)
    assert sizes is not None, "accumulates_low has looked"
    group = node.attributes.get_int("group", 1)
    channels, window = sizes[0], math.prod(sizes[1:])
    places = windows(nodes, node, data, channels * group, sizes[1:])
    terms = nodes.ints(0, group, channels, window, -1)
    split = nodes.add("Reshape", [places, terms])
    ordered = nodes.add("Transpose", [split], [ir.AttrInt64s("perm", [0, 1, 3, 2, 4])])
    columns = nodes.add("Reshape", [ordered, nodes.ints(0, group, channels * window, -1)])
    taps = nodes.add("Reshape", [weight, nodes.ints(group, -1, channels, window)])
    last = nodes.add("Transpose", [taps], [ir.AttrInt64s("perm", [0, 1, 3, 2])])
    rows = nodes.add("Reshape", [last, nodes.ints(group, -1, channels * window)])
    rows.shape, columns.shape = ir.Shape([None] * 3), ir.Shape([None] * 4)
    operands = [(rows, -1), (columns, -2)]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    begin = None
    if bias is not None and adder.rounds_once:
        begin = nodes.add("Reshape", [bias, nodes.ints(group, -1, 1)])  # the sum begins with it
    total = adder.add_up(nodes, operands, channels * window, _product, begin)
    area = nodes.add("Slice", [nodes.add("Shape", [places]), nodes.ints(2), nodes.ints(END)])
    out = nodes.add("Gather", [nodes.add("Shape", [weight]), nodes.ints(0)])
    shape = nodes.add("Concat", [nodes.ints(0), out, area], [ir.AttrInt64("axis", 0)])
    result = nodes.add("Reshape", [total, shape])
    if bias is None or begin is not None:
        return result
    column = nodes.add("Reshape", [bias, nodes.ints(-1, *[1] * len(sizes[1:]))])
    return adder.round(nodes, nodes.add("Add", [result, column]))


def filter_sizes(node: ir.Node) -> list[int] | None:
    """Return the channels of one group of a Conv, and the lengths of its window, if known.

    Where the weight's shape is not recorded, they follow from the data and from kernel_shape.
    """
    data, weight = operands_of(node)
    lengths = known_shape(weight)
    if lengths is not None:
        return lengths[1:]
    window, channels = node.attributes.get("kernel_shape"), length_of(data, 1)
    if window is None or channels is None:
        return None
    return [channels // node.attributes.get_int("group", 1), *window.as_ints()]


def windows(
    nodes: NodeCollector, node: ir.Node, data: ir.Value, channels: int, sizes: Sequence[int]
) -> ir.Value:
    """Return the elements of every window, (N, channels * window, places...).

    A Conv of each channel with the unit vectors: exact, but a window with an infinity becomes NaN,
    where the sum is infinite or NaN in any case.
    """
    window = math.prod(sizes)
    units = np.eye(window, dtype=np.float32).reshape(window, 1, *sizes)
    weight = ir.AttrTensor("value", ir.Tensor(np.tile(units, (channels, 1, *[1] * len(sizes)))))
    kept = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
    attributes = [a for name in kept if (a := node.attributes.get(name)) is not None]
    cut = nodes.add("Constant", [], [weight], FLOAT32.ir)
    found = nodes.add("Conv", [data, cut], [*attributes, ir.AttrInt64("group", channels)])
    found.shape = ir.Shape([None] * (2 + len(sizes)))
    return found
