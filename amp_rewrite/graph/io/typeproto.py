"""TypeProto and ValueInfoProto <-> onnx_ir types and shapes."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from amp_rewrite.graph.proto.messages import props, text


class OpaqueType(ir.TypeProtocol):
    """A type that onnx_ir has no class for: maps, opaque types, containers without an element."""

    __slots__ = ("denotation", "dtype", "elem_type", "proto")

    def __init__(self, proto: onnx.TypeProto) -> None:
        """Keep a copy of the message; the element type is UNDEFINED, there is no single one."""
        self.proto = onnx.TypeProto()
        self.proto.CopyFrom(proto)
        self.denotation = text(proto.denotation) if proto.denotation else None
        self.dtype = self.elem_type = ir.DataType.UNDEFINED


def read_type(proto: onnx.TypeProto) -> tuple[ir.TypeProtocol | None, ir.Shape | None]:
    """Return type and shape of a message that was checked; (None, None) for an empty one."""
    if proto.WhichOneof("value") is None:
        return None, None
    type_and_shape = _read(proto)
    return type_and_shape if type_and_shape is not None else (OpaqueType(proto), None)


def _read(proto: onnx.TypeProto) -> tuple[ir.TypeProtocol, ir.Shape | None] | None:
    """Return type and shape, or None where onnx_ir has no class for some part of the type."""
    kind = proto.WhichOneof("value")
    denotation = text(proto.denotation) if proto.HasField("denotation") else None
    if kind == "tensor_type":
        leaf = proto.tensor_type
        shape = read_shape(leaf.shape) if leaf.HasField("shape") else None
        return ir.TensorType(ir.DataType(leaf.elem_type), denotation=denotation), shape
    if kind in {"sequence_type", "optional_type"}:
        inner_proto = proto.sequence_type if kind == "sequence_type" else proto.optional_type
        inner = _read(inner_proto.elem_type)
        if inner is None:
            return None
        container = ir.SequenceType if kind == "sequence_type" else ir.OptionalType
        return container(inner[0], denotation=denotation), inner[1]
    return None


def read_shape(proto: onnx.TensorShapeProto) -> ir.Shape:
    """Return a frozen shape; a negative dimension, which some exporters write, is unknown."""
    dims: list[int | ir.SymbolicDim | None] = []
    denotations: list[str | None] = []
    for dim in proto.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value":
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        elif kind == "dim_param":
            dims.append(ir.SymbolicDim(text(dim.dim_param)))
        else:
            dims.append(None)
        denotations.append(text(dim.denotation) if dim.HasField("denotation") else None)
    return ir.Shape(dims, denotations=denotations, frozen=True)


def read_info(proto: onnx.ValueInfoProto, value: ir.Value) -> None:
    """Give `value` the type, shape, doc string and metadata of its declaration."""
    if proto.HasField("type"):
        type_, shape = read_type(proto.type)
        if type_ is not None:
            value.type, value.shape = type_, shape
    if proto.HasField("doc_string"):
        value.doc_string = text(proto.doc_string)
    if proto.metadata_props:
        value.metadata_props.update(props(proto.metadata_props))


def write_type(proto: onnx.TypeProto, type_: ir.TypeProtocol, shape: ir.Shape | None) -> None:
    """Fill a TypeProto."""
    if isinstance(type_, OpaqueType):
        proto.CopyFrom(type_.proto)
        return
    ir.serde.serialize_type_into(proto, type_)
    if shape is not None:
        ir.serde.serialize_shape_into(proto, shape)


def write_info(proto: onnx.ValueInfoProto, value: ir.Value) -> None:
    """Fill a ValueInfoProto from what the value says now."""
    proto.name = value.name or ""
    if value.type is not None:
        write_type(proto.type, value.type, value.shape)
    if value.doc_string:
        proto.doc_string = value.doc_string
    for key, entry in value.metadata_props.items():
        proto.metadata_props.add(key=key, value=entry)
