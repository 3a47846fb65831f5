"""Cast every tensor of a sequence: ONNX has no operator for it that every opset knows."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.dtypes import DType

_INT64 = ir.TensorType(ir.DataType.INT64)
_BOOL = ir.TensorType(ir.DataType.BOOL)


def cast_sequence(
    value: ir.Value, to: DType, name: str, stem: str
) -> tuple[list[ir.Node], ir.Value]:
    """Return the nodes that cast a sequence of tensors, in order, and their result.

    A Loop over the sequence casts one tensor at a time (a sequence can be carried by a Loop since
    opset 13).

    Args:
        value: The sequence.
        to: The element type of the result.
        name: The name of the result.
        stem: The name of the Loop; the names of what else is added start with it.
    """
    type_, dtype = ir.SequenceType(ir.TensorType(to.ir)), ir.AttrInt64("dtype", to.ir.value)
    length = ir.Value(name=f"{stem}/length", type=_INT64)
    empty = ir.Value(name=f"{stem}/empty", type=type_)
    result = ir.Value(name=name, type=type_)
    nodes = [
        ir.Node("", "SequenceLength", [value], outputs=[length], name=f"{stem}/SequenceLength"),
        ir.Node("", "SequenceEmpty", [], [dtype], outputs=[empty], name=f"{stem}/SequenceEmpty"),
    ]
    body = ir.AttrGraph("body", _body(value, to, stem))
    loop = ir.Node("", "Loop", [length, None, empty], [body], outputs=[result], name=stem)
    return [*nodes, loop], result


def _body(sequence: ir.Value, to: DType, stem: str) -> ir.Graph:
    """Return the Loop's body: take element i of the outer sequence, cast it, append it."""
    index = ir.Value(name=f"{stem}/i", type=_INT64, shape=ir.Shape([]))
    again = ir.Value(name=f"{stem}/again", type=_BOOL, shape=ir.Shape([]))
    carried = ir.Value(name=f"{stem}/carried", type=ir.SequenceType(ir.TensorType(to.ir)))
    at = ir.Node("", "SequenceAt", [sequence, index], name=f"{stem}/SequenceAt")
    at.outputs[0].name = f"{stem}/element"
    to_attribute = ir.AttrInt64("to", to.ir.value)
    cast = ir.Node("", "Cast", [at.outputs[0]], [to_attribute], name=f"{stem}/Cast")
    cast.outputs[0].name = f"{stem}/cast"
    insert = ir.Node(
        "", "SequenceInsert", [carried, cast.outputs[0]], name=f"{stem}/SequenceInsert"
    )
    insert.outputs[0].name = f"{stem}/longer"
    insert.outputs[0].type = ir.SequenceType(ir.TensorType(to.ir))
    on = ir.Node("", "Identity", [again], name=f"{stem}/Identity")
    on.outputs[0].name, on.outputs[0].type = f"{stem}/on", _BOOL
    outputs = [on.outputs[0], insert.outputs[0]]
    return ir.Graph(
        [index, again, carried], outputs, nodes=[at, cast, insert, on], name=f"{stem}/body"
    )
