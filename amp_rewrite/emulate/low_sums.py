"""Sums that are accumulated in the low type, chunk by chunk.

What is computed, for the operators of _RULES and a sum over n terms, is what a SumOrder says. An
operator that is only named is added up as tensor cores do with low sums: the terms are taken in
order in chunks of 16; a chunk is summed in float32, as one instruction does, and added to a running
sum, which is rounded to the low type after every chunk. Where a target was measured
(accumulation.py), every product and every sum is rounded, in the order of its kernels; several
running sums (lanes) are taken for chunks of 16 all the same. A reduction over several axes is done
axis by axis, the last one first. Gemm adds `beta * C`, Conv its bias, and a mean divides, at the
end, with one more rounding. A Loop does it, so that it is much slower than the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.accumulation import SumOrder, load
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.emulate.adder import Adder
from amp_rewrite.emulate.insert import Inserter
from amp_rewrite.emulate.low_steps import STEPS
from amp_rewrite.emulate.node_collector import NodeCollector
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.targets import Target

OLDEST_OPSET = 13
"""The first opset where ReduceSum and Squeeze take their axes as an input."""

_END = np.iinfo(np.int64).max

Sums = Mapping[str, Sequence[SumOrder | None]]
"""Operator -> how it adds up, the first order whose condition holds; None for chunks of 16."""


def sums_of(operators: Collection[str] | Sums) -> Sums:
    """Return how operators add up, of orders or of bare names.

    Raises:
        OptionError: An operator has no rule, or a bare string was given.
    """
    if isinstance(operators, str):
        raise OptionError(
            "accumulate_low must be a list", found=repr(operators), expected=f"[{operators!r}]"
        )
    for name in operators:
        if name not in _RULES and name not in STEPS:
            raise OptionError(
                "accumulate_low does not know how to accumulate in the low type",
                found=repr(name),
                expected=", ".join(_RULES),
            )
    return operators if isinstance(operators, Mapping) else dict.fromkeys(operators, (None,))


def kept_low(target: Target, low: DType, opset: int = OLDEST_OPSET) -> Sums:
    """Return how a target's kernels add up, of the operators that keep partial sums in `low`.

    Args:
        target: The target; of several, the sums of any that are low.
        low: The type.
        opset: That of the model. For one that is too old there are none: its sums are float32.
    """
    if opset < OLDEST_OPSET:
        return {}
    if target.parts:
        return {op: sums for part in target.parts for op, sums in kept_low(part, low).items()}
    table = load(target.provider)
    if table is None:
        return dict.fromkeys(_RULES, (None,)) if target.accumulates_in is low else {}
    measured = {op: table.sums.get(("", op), ()) for op in _RULES}
    kept = {op: rows for op, rows in measured.items() if any(row.type is low for row in rows)}
    return kept | {op: (SumOrder(low),) for op in STEPS if table.steps.get(("", op)) is low}


def accumulates_low(node: ir.Node, sums: Sums) -> bool:
    """Tell whether a node is one of the operators whose sums are to be low.

    A Conv whose weight has no known shape is not: its windows cannot be told apart. Nor is a
    reduction over axes that the model computes, unless it was named: then that is an error.
    """
    if node.domain != "" or node.op_type not in sums:
        return False
    if node.op_type in STEPS:
        return len(node.outputs) == 1  # not BatchNormalization in training mode
    if has(node, Trait.SUMS_UP):
        return None in sums[node.op_type] or _axes(node) is not None
    return node.op_type != "Conv" or _static(_operands(node)[1]) is not None


def lower_accumulation(
    node: ir.Node, dtype: DType, opset: int, insert: Inserter, sums: Sums
) -> None:
    """Replace a node whose values are float32 by one that accumulates in `dtype`.

    Raises:
        OptionError: The opset is too old, or a reduction's axes are computed by the model.
    """
    nodes, result = accumulation(node, dtype, opset, insert.names, sums)
    insert.replace_node(node, nodes, result)


def accumulation(
    node: ir.Node, dtype: DType, opset: int, names: AddedNames, sums: Sums
) -> tuple[list[ir.Node], ir.Value]:
    """Return nodes that compute what a node does and accumulate in `dtype`, and their result.

    Raises:
        OptionError: The opset is too old, or a reduction's axes are computed by the model.
    """
    if opset < OLDEST_OPSET:
        raise OptionError(
            "accumulate_low needs a newer opset",
            where=node.name,
            found=opset,
            expected=f"at least {OLDEST_OPSET}",
            remedy="convert the model with onnx.version_converter",
        )
    nodes = NodeCollector(node.outputs[0].name or "", names)
    if node.op_type in STEPS:
        result = STEPS[node.op_type](nodes, node, dtype)
    else:
        result = _RULES[node.op_type](nodes, node, Adder(dtype, _order_of(node, sums)))
    return nodes.made, result


def _order_of(node: ir.Node, sums: Sums) -> SumOrder | None:
    for order in sums[node.op_type]:
        if order is None or all(node.attributes.get_int(n, 0) == v for n, v in order.when):
            return None if order is None or order.lanes > 1 else order
    return None


def _matmul(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    a, b = _operands(node)
    rank = nodes.add("Shape", [nodes.add("Shape", [b])])
    axis = nodes.add("Max", [nodes.add("Sub", [rank, nodes.ints(2)]), nodes.ints(0)])
    operands = [(a, nodes.ints(-1)), (b, axis)]
    return adder.add_up(nodes, operands, _length(a, -1), _product)


def _product(nodes: NodeCollector, parts: Sequence[ir.Value]) -> ir.Value:
    return nodes.add("MatMul", parts)


def _gemm(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    a, b = _operands(node)
    flags = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
    transposes = [
        attribute
        for name in ("transA", "transB")
        if (attribute := node.attributes.get(name)) is not None
    ]

    def partial(new: NodeCollector, parts: Sequence[ir.Value]) -> ir.Value:
        return new.add("Gemm", parts, transposes)

    axes = 0 if flags[0] else 1, 1 if flags[1] else 0
    operands = [(a, nodes.ints(axes[0])), (b, nodes.ints(axes[1]))]
    length = _length(a, axes[0]) or _length(b, axes[1])
    total = _scaled(nodes, adder.add_up(nodes, operands, length, partial), node, "alpha", adder)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        total = nodes.add("Add", [total, _scaled(nodes, bias, node, "beta", adder)])
    return adder.round(nodes, total)


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


def _conv(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Cut out the windows, (N, group, terms, places), and multiply by the weight as a matrix."""
    data, weight = _operands(node)
    sizes = _static(weight)
    assert sizes is not None, "accumulates_low has looked"
    group = node.attributes.get_int("group", 1)
    out, channels, window = sizes[0], sizes[1], math.prod(sizes[2:])
    places = _windows(nodes, node, data, channels * group, sizes[2:])
    terms = nodes.ints(0, group, channels, window, -1)
    split = nodes.add("Reshape", [places, terms])
    ordered = nodes.add("Transpose", [split], [ir.AttrInt64s("perm", [0, 1, 3, 2, 4])])
    columns = nodes.add("Reshape", [ordered, nodes.ints(0, group, channels * window, -1)])
    taps = nodes.add("Reshape", [weight, nodes.ints(group, out // group, channels, window)])
    last = nodes.add("Transpose", [taps], [ir.AttrInt64s("perm", [0, 1, 3, 2])])
    rows = nodes.add("Reshape", [last, nodes.ints(group, out // group, channels * window)])
    operands = [(rows, nodes.ints(-1)), (columns, nodes.ints(-2))]
    total = adder.add_up(nodes, operands, channels * window, _product)
    area = nodes.add("Slice", [nodes.add("Shape", [places]), nodes.ints(2), nodes.ints(_END)])
    shape = nodes.add("Concat", [nodes.ints(0, out), area], [ir.AttrInt64("axis", 0)])
    result = nodes.add("Reshape", [total, shape])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return result
    column = nodes.add("Reshape", [bias, nodes.ints(-1, *[1] * len(sizes[2:]))])
    return adder.round(nodes, nodes.add("Add", [result, column]))


def _windows(
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
    return nodes.add("Conv", [data, cut], [*attributes, ir.AttrInt64("group", channels)])


def _static(value: ir.Value) -> list[int] | None:
    """Return the shape of a value; None if a length is not known."""
    if value.shape is None:
        return None
    known = [length for length in value.shape if isinstance(length, int)]
    return known if len(known) == len(value.shape) else None


def _global_average(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    source = _operands(node)[0]
    flat = nodes.add("Reshape", [source, nodes.ints(0, 0, -1)])
    mean = _divided(nodes, _reduce_axis(nodes, flat, 2, adder), source, adder)
    lengths = nodes.add("Shape", [source])
    shape = nodes.add("Slice", [lengths, nodes.ints(0), nodes.ints(2)])
    rank = nodes.add("Sub", [nodes.add("Shape", [lengths]), nodes.ints(2)])
    ones = nodes.add("Expand", [nodes.ints(1), rank])
    full = nodes.add("Concat", [shape, ones], [ir.AttrInt64("axis", 0)])
    return nodes.add("Reshape", [mean, full])


def _reduce_sum(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    return nodes.add("Identity", [_reduce(nodes, node, adder)])


def _reduce_mean(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    return _divided(nodes, _reduce(nodes, node, adder), _operands(node)[0], adder)


def _divided(nodes: NodeCollector, total: ir.Value, source: ir.Value, adder: Adder) -> ir.Value:
    """Divide sums by the number of elements of the source that each is of."""
    to = [ir.AttrInt64("to", FLOAT32.ir.value)]
    sizes = [nodes.add("Cast", [nodes.add("Size", [v])], to) for v in (source, total)]
    return adder.round(nodes, nodes.add("Div", [total, nodes.add("Div", sizes)]))


def _reduce(nodes: NodeCollector, node: ir.Node, adder: Adder) -> ir.Value:
    """Sum over the axes of a reduction, one after the other."""
    source = _operands(node)[0]
    axes = _constant_axes(node)
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

    return adder.add_up(nodes, [(value, axes)], _length(value, axis), partial)


def _length(value: ir.Value, axis: int) -> int | None:
    shape = value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    length = shape[axis]
    return length if isinstance(length, int) else None


def _operands(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs[:2] if value is not None]


def _constant_axes(node: ir.Node) -> list[int]:
    """Return the axes of a reduction.

    Raises:
        OptionError: The model computes them.
    """
    axes = _axes(node)
    if axes is None:
        raise OptionError(
            "accumulate_low needs constant axes",
            where=node.name or node.outputs[0].name,
            found="axes that the model computes",
        )
    return axes


def _axes(node: ir.Node) -> list[int] | None:
    """Return the axes of a reduction, none for all of them; None if the model computes them."""
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"].as_ints()]
    value = node.inputs[1] if len(node.inputs) > 1 else None
    if value is None:
        return []
    tensor = value.const_value
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and "value" in producer.attributes:
        tensor = producer.attributes["value"].as_tensor()
    if tensor is None:
        return None
    return [int(axis) for axis in np.asarray(tensor.numpy()).reshape(-1)]


_RULES: dict[str, Callable[[NodeCollector, ir.Node, Adder], ir.Value]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average,
    "MatMul": _matmul,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
}
