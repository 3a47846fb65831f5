"""Sums that are accumulated in the low type, chunk by chunk.

What is computed, for the operators of _RULES and a sum over n terms: the terms are taken in
order in chunks of 16; a chunk is summed in float32, as one tensor-core instruction does, and added
to a running sum, which is rounded to the low type after every chunk. A reduction over several axes
is done axis by axis, the last one first. Gemm adds `beta * C`, and ReduceMean divides, at the end,
with one more rounding. A Loop does it, so that it is much slower than the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.emulate.insert import Inserter
from amp_rewrite.emulate.node_collector import NodeCollector
from amp_rewrite.errors import OptionError
from amp_rewrite.targets import Target

CHUNK = 16
"""Terms that are summed before the running sum is rounded: the depth of one mma.sync m16n8k16."""

OLDEST_OPSET = 13
"""The first opset where ReduceSum and Squeeze take their axes as an input."""

Sliced = tuple[ir.Value, ir.Value]
"""A value, and the axis along which it is cut, as a 1-D int64 value."""
Partial = Callable[[NodeCollector, Sequence[ir.Value]], ir.Value]
"""Adds the nodes that sum one chunk of each operand."""


def check_operators(operators: Collection[str]) -> None:
    """Refuse operators whose sums cannot be accumulated in the low type.

    Raises:
        OptionError: An operator has no rule, or a bare string was given.
    """
    if isinstance(operators, str):
        raise OptionError(
            "accumulate_low must be a list", found=repr(operators), expected=f"[{operators!r}]"
        )
    for name in operators:
        if name not in _RULES:
            raise OptionError(
                "accumulate_low does not know how to accumulate in the low type",
                found=repr(name),
                expected=", ".join(_RULES),
            )


def kept_low(target: Target, low: DType) -> tuple[str, ...]:
    """Return the operators whose partial sums a target's kernels keep in `low`."""
    return tuple(_RULES) if target.accumulates_in is low else ()


def accumulates_low(node: ir.Node, operators: Collection[str]) -> bool:
    """Tell whether a node is one of the operators whose sums are to be low."""
    return node.domain == "" and node.op_type in operators


def lower_accumulation(node: ir.Node, dtype: DType, opset: int, insert: Inserter) -> None:
    """Replace a node whose values are float32 by one that accumulates in `dtype`.

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
    nodes = NodeCollector(node.outputs[0].name or "", insert.names)
    result = _RULES[node.op_type](nodes, node, dtype)
    insert.replace_node(node, nodes.made, result)


def _matmul(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    a, b = _operands(node)
    rank = nodes.add("Shape", [nodes.add("Shape", [b])])
    axis = nodes.add("Max", [nodes.add("Sub", [rank, nodes.ints(2)]), nodes.ints(0)])
    operands = [(a, nodes.ints(-1)), (b, axis)]
    return _accumulate(nodes, operands, dtype, lambda new, parts: new.add("MatMul", parts))


def _gemm(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    a, b = _operands(node)
    flags = [node.attributes.get_int(name, 0) for name in ("transA", "transB")]
    attributes = [
        attribute
        for name in ("alpha", "transA", "transB")
        if (attribute := node.attributes.get(name)) is not None
    ]

    def partial(new: NodeCollector, parts: Sequence[ir.Value]) -> ir.Value:
        return new.add("Gemm", parts, attributes)

    operands = [(a, nodes.ints(0 if flags[0] else 1)), (b, nodes.ints(1 if flags[1] else 0))]
    total = _accumulate(nodes, operands, dtype, partial)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return total
    beta = node.attributes.get("beta")
    if beta is not None:
        bias = nodes.add("Mul", [bias, nodes.number(beta.as_float())])
    return nodes.round(nodes.add("Add", [total, bias]), dtype)


def _reduce_sum(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    return nodes.add("Identity", [_reduce(nodes, node, dtype)])


def _reduce_mean(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    total = _reduce(nodes, node, dtype)
    source = _operands(node)[0]
    to = [ir.AttrInt64("to", FLOAT32.ir.value)]
    sizes = [nodes.add("Cast", [nodes.add("Size", [v])], to) for v in (source, total)]
    return nodes.round(nodes.add("Div", [total, nodes.add("Div", sizes)]), dtype)


def _reduce(nodes: NodeCollector, node: ir.Node, dtype: DType) -> ir.Value:
    """Sum over the axes of a reduction, one after the other."""
    source = _operands(node)[0]
    axes = _axes(node)
    keeps = node.attributes.get_int("keepdims", 1) == 1
    if axes:
        total = source
        for axis in reversed(axes):
            total = _reduce_axis(nodes, total, axis, dtype)
        return total if keeps else nodes.add("Squeeze", [total, nodes.ints(*axes)])
    if node.attributes.get_int("noop_with_empty_axes", 0) == 1:
        return source
    total = _reduce_axis(nodes, nodes.add("Reshape", [source, nodes.ints(-1)]), 0, dtype)
    if not keeps:
        return nodes.add("Squeeze", [total, nodes.ints(0)])
    rank = nodes.add("Shape", [nodes.add("Shape", [source])])
    ones = nodes.add("Expand", [nodes.ints(1), rank])
    return nodes.add("Reshape", [total, ones])


def _reduce_axis(nodes: NodeCollector, value: ir.Value, axis: int, dtype: DType) -> ir.Value:
    axes = nodes.ints(axis)
    return _accumulate(
        nodes, [(value, axes)], dtype, lambda new, parts: new.add("ReduceSum", [*parts, axes])
    )


def _accumulate(
    nodes: NodeCollector, operands: Sequence[Sliced], dtype: DType, partial: Partial
) -> ir.Value:
    """Sum the first chunk, then the others in a Loop."""
    value, axis = operands[0]
    size = nodes.add("Gather", [nodes.add("Shape", [value]), axis])
    rest = nodes.add("Div", [nodes.add("Sub", [size, nodes.ints(1)]), nodes.ints(CHUNK)])
    trips = nodes.add("Squeeze", [rest])
    parts = [nodes.add("Slice", [v, nodes.ints(0), nodes.ints(CHUNK), a]) for v, a in operands]
    first = nodes.round(partial(nodes, parts), dtype)
    body = ir.AttrGraph("body", _body(nodes, operands, dtype, partial))
    return nodes.add("Loop", [trips, None, first], [body], FLOAT32.ir)


def _body(
    outer: NodeCollector, operands: Sequence[Sliced], dtype: DType, partial: Partial
) -> ir.Graph:
    """Return the Loop's body: add chunk i + 1 to the running sum and round."""
    nodes = outer.nested("chunk")
    index = nodes.value("i", ir.DataType.INT64, ir.Shape([]))
    again = nodes.value("again", ir.DataType.BOOL, ir.Shape([]))
    total = nodes.value("total", FLOAT32.ir)
    number = nodes.add("Add", [index, nodes.ints(1)])
    start = nodes.add("Mul", [number, nodes.ints(CHUNK)])
    end = nodes.add("Add", [start, nodes.ints(CHUNK)])
    parts = [nodes.add("Slice", [value, start, end, axis]) for value, axis in operands]
    added = nodes.add("Add", [total, partial(nodes, parts)])
    on = nodes.add("Identity", [again], type_=ir.DataType.BOOL)
    outputs = [on, nodes.round(added, dtype)]
    name = f"{total.name}/body"
    return ir.Graph([index, again, total], outputs, nodes=nodes.made, name=name)


def _operands(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs[:2] if value is not None]


def _axes(node: ir.Node) -> list[int]:
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
        raise OptionError(
            "accumulate_low needs constant axes",
            where=node.name or node.outputs[0].name,
            found=f"axes computed as {value.name!r}",
        )
    return [int(axis) for axis in np.asarray(tensor.numpy()).reshape(-1)]


_RULES: dict[str, Callable[[NodeCollector, ir.Node, DType], ir.Value]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
}
