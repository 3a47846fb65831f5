"""onnx_ir.Model -> ModelProto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.flat import PLAIN
from amp_rewrite.graph.io.model_files import Place, refer
from amp_rewrite.graph.io.read import message_of
from amp_rewrite.graph.io.typeproto import write_info, write_type
from amp_rewrite.graph.metadata_keys import GIVEN_NAME_KEY

_KINDS = ir.AttributeType


class ModelWriter:
    """Writes one model; the tensors in `places` become references to a data file."""

    def __init__(self, model: ir.Model, places: Mapping[int, Place] | None = None) -> None:
        """Prepare to write; `places` are those of tensors, by their id."""
        self.model = model
        self.places = places or {}

    def message(self) -> onnx.ModelProto:
        """Return the whole model."""
        proto = self.header()
        self.graph(proto.graph, self.model.graph)
        return proto

    def header(self) -> onnx.ModelProto:
        """Return everything of the model except its main graph."""
        model, source, proto = self.model, message_of(self.model), onnx.ModelProto()
        proto.ir_version = model.ir_version
        for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
            value = getattr(model, field)
            if value is not None:
                setattr(proto, field, value)
        _write_opsets(proto.opset_import, model.opset_imports)
        _write_props(proto.metadata_props, model.metadata_props)
        if source is not None:
            proto.training_info.extend(source.training_info)
            proto.configuration.extend(source.configuration)
        for function in model.functions.values():
            self._function(proto.functions.add(), function)
        return proto

    def graph(self, proto: onnx.GraphProto, graph: ir.Graph) -> None:
        """Fill a GraphProto."""
        if graph.name is not None:
            proto.name = graph.name
        _write_doc(proto, graph.doc_string)
        _write_props(proto.metadata_props, graph.metadata_props)
        for value in graph.inputs:
            write_info(proto.input.add(), value)
        for value in graph.outputs:
            write_info(proto.output.add(), value)
        for value in graph.initializers.values():
            if value.const_value is not None:
                entry = proto.initializer.add()
                self.tensor(entry, value.const_value)
                entry.name = value.name or ""
        self._nodes(proto, graph)

    def node(self, node: ir.Node) -> onnx.NodeProto:
        """Return the message of a node; a name that it was given when it was read is left out."""
        name = node.name
        proto = onnx.NodeProto(
            op_type=node.op_type,
            input=[value.name or "" if value is not None else "" for value in node.inputs],
            output=[value.name or "" for value in node.outputs],
            name=name if name and name != node.meta.get(GIVEN_NAME_KEY) else None,
        )
        if node.domain:
            proto.domain = node.domain
        if node.overload:
            proto.overload = node.overload
        _write_doc(proto, node.doc_string)
        _write_props(proto.metadata_props, node.metadata_props)
        for attribute in node.attributes.values():
            self._attribute(proto.attribute.add(), attribute)
        return proto

    def _attribute(self, proto: onnx.AttributeProto, attribute: ir.Attr) -> None:
        kind, value = attribute.type, attribute.value
        proto.name = attribute.name
        proto.type = kind.value  # pyright: ignore[reportAttributeAccessIssue] the same numbers
        if attribute.doc_string:
            proto.doc_string = attribute.doc_string
        if attribute.is_ref():
            proto.ref_attr_name = attribute.ref_attr_name or ""
        elif value is not None:
            self._value(proto, kind, value)

    def _value(self, proto: onnx.AttributeProto, kind: ir.AttributeType, value: Any) -> None:
        if kind in (_KINDS.INT, _KINDS.FLOAT):
            setattr(proto, PLAIN[kind.value], value)
        elif kind.value in PLAIN:
            getattr(proto, PLAIN[kind.value]).extend(value)
        elif kind is _KINDS.STRING:
            proto.s = _to_bytes(value)
        elif kind is _KINDS.STRINGS:
            proto.strings.extend(_to_bytes(entry) for entry in value)
        elif kind is _KINDS.TENSOR:
            self.tensor(proto.t, value)
        elif kind is _KINDS.GRAPH:
            self.graph(proto.g, value)
        elif kind is _KINDS.SPARSE_TENSOR:
            proto.sparse_tensor.CopyFrom(value)
        elif kind is _KINDS.TYPE_PROTO and value.type is not None:
            write_type(proto.tp, value.type, value.shape)
        else:
            raise GraphError(
                f"attribute {proto.name!r} is of a type that no operator has", found=kind.name
            )

    def tensor(self, proto: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        """Fill an empty TensorProto; an external tensor without a new place keeps its own."""
        place = self.places.get(id(tensor))
        if place is None and isinstance(tensor, ir.ExternalTensor):
            place = Place(str(tensor.location), tensor.offset or 0, tensor.nbytes)
        if place is None and isinstance(tensor, ir.TensorProtoTensor):
            proto.CopyFrom(tensor.raw)
            return
        if tensor.name:
            proto.name = tensor.name
        if tensor.doc_string:
            proto.doc_string = tensor.doc_string
        proto.data_type = tensor.dtype.value
        proto.dims.extend(tensor.shape.numpy())  # pyright: ignore[reportAttributeAccessIssue]
        _write_props(proto.metadata_props, tensor.metadata_props)
        if place is not None:
            refer(proto, place)
        elif tensor.dtype is ir.DataType.STRING:
            proto.string_data.extend(_to_bytes(entry) for entry in tensor.numpy().reshape(-1))
        else:
            proto.raw_data = tensor.tobytes()

    def _function(self, proto: onnx.FunctionProto, function: ir.Function) -> None:
        graph = function.graph
        proto.name, proto.domain = function.name, function.domain
        if function.overload:
            proto.overload = function.overload
        _write_doc(proto, graph.doc_string)
        proto.input.extend(value.name or "" for value in graph.inputs)
        proto.output.extend(value.name or "" for value in graph.outputs)
        for attribute in function.attributes.values():
            if attribute.value is None and not attribute.is_ref():
                proto.attribute.append(attribute.name)
            else:
                self._attribute(proto.attribute_proto.add(), attribute)
        self._nodes(proto, graph)
        _write_opsets(proto.opset_import, graph.opset_imports)
        _write_props(proto.metadata_props, graph.metadata_props)

    def _nodes(self, proto: onnx.GraphProto | onnx.FunctionProto, graph: ir.Graph) -> None:
        """Write nodes, and value_info of what is declared nowhere else and whose type is known."""
        is_body, nodes = isinstance(proto, onnx.FunctionProto), list[onnx.NodeProto]()
        values = list(graph.inputs) if is_body else []
        for node in graph:
            nodes.append(self.node(node))
            values += node.outputs
        for value in values:
            if _worth_declaring(value) and (is_body or not value.is_graph_output()):
                write_info(proto.value_info.add(), value)
        proto.node.extend(nodes)


def _worth_declaring(value: ir.Value) -> bool:
    return bool(value.name) and (
        value.type is not None or bool(value.doc_string) or bool(value.metadata_props)
    )


def _write_doc(proto: Any, doc: str | None) -> None:
    if doc is not None:
        proto.doc_string = doc


def _write_props(entries: Any, current: Mapping[str, str]) -> None:
    for key, value in current.items():
        entries.add(key=key, value=value)


def _write_opsets(entries: Any, current: Mapping[str, int]) -> None:
    for domain, version in current.items():
        entries.add(domain=domain, version=version)


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)
