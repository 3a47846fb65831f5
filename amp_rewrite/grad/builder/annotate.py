"""Types and shapes of a new node's outputs, from onnx's own inference."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.known import better_shape, constant_tensor, solve_reshape
from amp_rewrite.graph.io.typeproto import write_type
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traverse import subgraphs

_SMALL = 64  # elements; what inference reads are shapes, axes and the like

# operators: those of whose results onnx infers no rank.
_OF_SHAPE = {"Reshape": 1, "ConstantOfShape": 0}
"""The input that is the output's shape: the rank is its length even where it is computed."""

# operators: as above.
_SAME = {"LessOrEqual": "Less", "GreaterOrEqual": "Greater"}
"""Operators whose shapes onnx does not infer before opset 16 -> one whose result has the same."""


def annotate(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Record the types and shapes of a node's outputs as far as they follow from its inputs.

    Raises:
        GradientError: The operator does not admit these inputs.
    """
    schema = _schema(node, opsets) if _is_typed(node) else None
    if schema is None:
        return
    types = _inferred(node, schema, opsets)
    for value in node.outputs:
        proto = types.get(value.name or "")
        if proto is not None:
            value.type = value.type or ir.serde.deserialize_type_proto_for_type(proto)
            shape = ir.serde.deserialize_type_proto_for_shape(proto)
            shape = _rank_only(node) if shape is None else shape
            value.shape = better_shape(value.shape, shape)
    if node.op_type == "Reshape":
        solve_reshape(node)


def _is_typed(node: ir.Node) -> bool:
    """Return whether the types of a node's inputs are known, and onnx can be given the node."""
    typed = all(v is None or v.type is not None for v in node.inputs)
    # onnx_ir cannot hand over a sparse attribute
    return typed and next(subgraphs(node), None) is None and "sparse_value" not in node.attributes


def _schema(node: ir.Node, opsets: Mapping[str, int]) -> onnx.defs.OpSchema | None:
    """Return the schema of an operator, or of one with the same shapes; None if it has none."""
    kind = node.op_type if node.domain else _SAME.get(node.op_type, node.op_type)
    try:
        return onnx.defs.get_schema(kind, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return None


def _inferred(
    node: ir.Node, schema: onnx.defs.OpSchema, opsets: Mapping[str, int]
) -> Mapping[str, onnx.TypeProto]:
    """Return output -> what onnx infers of its type."""
    present = {v.name or "": v for v in node.inputs if v is not None}
    types = {name: _type_proto(value) for name, value in present.items()}
    data = {name: proto for name, v in present.items() if (proto := _data(v)) is not None}
    try:
        return onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in opsets.items()],
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError) as error:
        raise GradientError(
            "an operator does not admit its inputs", where=place(node), found=error
        ) from error


def _rank_only(node: ir.Node) -> ir.Shape | None:
    """Return as many unknown lengths as are certain where inference gives up altogether."""
    if node.op_type in _OF_SHAPE:
        wanted = node.inputs[_OF_SHAPE[node.op_type]]
        dims = () if wanted is None or wanted.shape is None else wanted.shape.dims
        rank = dims[0] if len(dims) == 1 else None
    else:
        data = node.inputs[0] if node.op_type == "Split" else None
        rank = None if data is None or data.shape is None else len(data.shape.dims)
    return ir.Shape([None] * rank) if isinstance(rank, int) else None


def _type_proto(value: ir.Value) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if value.type is not None:
        write_type(proto, value.type, value.shape)
    return proto


def _data(value: ir.Value) -> onnx.TensorProto | None:
    tensor = constant_tensor(value)
    if tensor is None or tensor.size > _SMALL:
        return None
    return ir.serde.serialize_tensor(tensor)
