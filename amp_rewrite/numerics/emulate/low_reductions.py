"""Reductions and means whose sums are accumulated in the 16-bit type, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.numerics.emulate.adder import Adder, length_of, operands_of
from amp_rewrite.numerics.emulate.low_products import END, windows
from amp_rewrite.numerics.emulate.node_collector import NodeCollector


def global_average(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Add up all places of a channel and divide by their number."""
    source = operands_of(node)[0]
    flat = nodes.add("Reshape", [source, nodes.ints(0, 0, -1)])
    flat.shape = ir.Shape([None] * 3)
    mean = _divided(nodes, _reduce_axis(nodes, flat, 2, adder), source, adder)
    lengths = nodes.add("Shape", [source])
    shape = nodes.add("Slice", [lengths, nodes.ints(0), nodes.ints(2)])
    rank = nodes.add("Sub", [nodes.add("Shape", [lengths]), nodes.ints(2)])
    ones = nodes.add("Expand", [nodes.ints(1), rank])
    full = nodes.add("Concat", [shape, ones], [ir.AttrInt64("axis", 0)])
    return nodes.add("Reshape", [mean, full])


def average_pool(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Add up each window, row by row, and divide by the number of its elements."""
    source = operands_of(node)[0]
    sizes = node.attributes["kernel_shape"].as_ints()
    lengths = nodes.add("Shape", [source])
    places = _from(nodes, lengths, 2)
    ends = [ir.AttrInt64("axis", 0)]
    apart = nodes.add("Concat", [nodes.ints(-1, 1), places], ends)  # every channel by itself
    cut = windows(nodes, node, nodes.add("Reshape", [source, apart]), 1, sizes)
    total = _reduce_axis(nodes, cut, 1, adder)
    count = nodes.number(math.prod(sizes))
    if node.attributes.get_int("count_include_pad", 0) == 0:
        one = nodes.add("Concat", [nodes.ints(1, 1), places], ends)
        ones = nodes.add("Expand", [nodes.number(1), one])
        sums = windows(nodes, node, ones, 1, sizes)
        count = nodes.add("ReduceSum", [sums, nodes.ints(1)])
    mean = adder.round(nodes, nodes.add("Div", [total, count]))
    first = nodes.add("Slice", [lengths, nodes.ints(0), nodes.ints(2)])
    rest = _from(nodes, nodes.add("Shape", [mean]), 2)
    return nodes.add("Reshape", [mean, nodes.add("Concat", [first, rest], ends)])


def _from(nodes: NodeCollector, lengths: ir.Value, start: int) -> ir.Value:
    """Return the lengths from an axis on."""
    return nodes.add("Slice", [lengths, nodes.ints(start), nodes.ints(END)])


def reduce_sum(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Add up along axes."""
    return nodes.add("Identity", [_reduce(nodes, node, adder)])


def reduce_mean(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Add up along axes and divide by the number of elements."""
    return _divided(nodes, _reduce(nodes, node, adder), operands_of(node)[0], adder)


def _divided(nodes: NodeCollector, total: ir.Value, source: ir.Value, adder: Adder) -> ir.Value:
    """Divide sums by the number of elements of the source that each is of."""
    sizes = [nodes.cast(nodes.add("Size", [v]), FLOAT32.ir) for v in (source, total)]
    return adder.round(nodes, nodes.add("Div", [total, nodes.add("Div", sizes)]))


def _reduce(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Sum over the axes of a reduction, one after the other.

    Raises:
        OptionError: The model computes the axes.
    """
    source = operands_of(node)[0]
    axes = axes_of(node)
    if axes is None:
        raise OptionError(
            "accumulate_low needs constant axes",
            where=node.name or node.outputs[0].name,
            found="axes that the model computes",
        )
    keeps = node.attributes.get_int("keepdims", 1) == 1
    if axes:
        total = source
        for axis in reversed(axes):
            total = _reduce_axis(nodes, total, axis, adder)
        return total if keeps else nodes.add("Squeeze", [total, nodes.ints(*axes)])
    if node.attributes.get_int("noop_with_empty_axes", 0) == 1:
        return source
    total = _reduce_axis(nodes, nodes.add("Reshape", [source, nodes.ints(-1)]), 0, adder)
    if not keeps:
        return nodes.add("Squeeze", [total, nodes.ints(0)])
    rank = nodes.add("Shape", [nodes.add("Shape", [source])])
    ones = nodes.add("Expand", [nodes.ints(1), rank])
    return nodes.add("Reshape", [total, ones])


def _reduce_axis(nodes: NodeCollector, value: ir.Value, axis: int, adder: Adder) -> ir.Value:
    axes = nodes.ints(axis)

    def partial(new: NodeCollector, parts: Sequence[ir.Value]) -> ir.Value:
        return new.add("ReduceSum", [*parts, axes])

    return adder.add_up(nodes, [(value, axis)], length_of(value, axis), partial)


def axes_of(node: ir.Node) -> list[int] | None:
    """Return the axes of a reduction, none for all of them; None if the model computes them."""
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"].as_ints()]
    value = node.inputs[1] if len(node.inputs) > 1 else None
    if value is None:
        return []
    tensor = known_tensor(value)
    return None if tensor is None else [int(axis) for axis in tensor.numpy().reshape(-1)]
