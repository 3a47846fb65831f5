"""onnx_ir.Model -> ModelProto: messages of what has not changed are copied, the others written."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from amp_rewrite.graph import origin as origins
from amp_rewrite.graph.io.model_files import Place, refer
from amp_rewrite.graph.io.read import QUANTIZATION
from amp_rewrite.graph.io.typeproto import write_info, write_type
from amp_rewrite.graph.origin import GraphOrigin, Origin, ValueOrigin
from amp_rewrite.graph.proto.messages import copy_text, props, text
from amp_rewrite.graph.tensors import SparseTensor

_KINDS = ir.AttributeType
_FIELDS: dict[ir.AttributeType, str] = {_KINDS.INT: "i", _KINDS.FLOAT: "f"}
_LISTS: dict[ir.AttributeType, str] = {
    _KINDS.INTS: "ints",
    _KINDS.FLOATS: "floats",
    _KINDS.SPARSE_TENSORS: "sparse_tensors",
}
_NO_NODE = onnx.NodeProto()
_DEVICES_SINCE = 11  # the IR version that introduced device configurations


class ModelWriter:
    """Writes one model; the tensors in `places` become references to a data file."""

    def __init__(self, model: ir.Model, places: Mapping[int, Place] | None = None) -> None:
        """Prepare to write; `places` are those of tensors, by their id."""
        self.model = model
        self.places = places or {}
        self.origin = origins.of(model) or Origin(onnx.ModelProto(), annotated=True)

    def message(self) -> onnx.ModelProto:
        """Return the whole model."""
        proto = self.header()
        self.graph(proto.graph, self.model.graph)
        return proto

    def header(self) -> onnx.ModelProto:
        """Return everything of the model except its main graph."""
        model, source, proto = self.model, self.origin.model, onnx.ModelProto()
        proto.ir_version = model.ir_version
        for field in ("producer_name", "producer_version", "domain", "model_version"):
            value = getattr(model, field)
            if value is not None:
                setattr(proto, field, value)
        _write_doc(proto, source, model.doc_string)
        _write_opsets(proto.opset_import, model.opset_imports, source.opset_import)
        _write_props(proto.metadata_props, model.metadata_props, source.metadata_props)
        proto.training_info.extend(source.training_info)
        if source.configuration:
            proto.configuration.extend(source.configuration)
        elif model.ir_version >= _DEVICES_SINCE:
            proto.configuration.extend(
                ir.serde.serialize_model_configuration(entry)
                for entry in model.device_configurations
            )
        for function in model.functions.values():
            self._function(proto.functions.add(), function)
        return proto

    def graph(
        self, proto: onnx.GraphProto, graph: ir.Graph, deferred: list[ir.Value] | None = None
    ) -> None:
        """Fill a GraphProto.

        The initializers that are stored in the file itself go to `deferred`, for the caller to
        write, unless it is None.
        """
        note = self.origin.graphs.get(graph) or GraphOrigin(onnx.GraphProto())
        if graph.name is not None:
            proto.name = graph.name
        _write_doc(proto, note.proto, graph.doc_string)
        _write_props(proto.metadata_props, graph.metadata_props, note.proto.metadata_props)
        for value in graph.inputs:
            self._declare_value(proto.input, value, "input")
        for value in graph.outputs:
            self._declare_value(proto.output, value, "output")
        for value in graph.initializers.values():
            self._initializer(proto, value, deferred)
        self._nodes(proto, graph, note)
        self._annotations(proto, graph, note)

    def node(self, node: ir.Node) -> onnx.NodeProto:
        """Return a node's message: the one it was read from if it still says the same."""
        entry = self.origin.nodes.get(node)
        if entry is None:
            return self._new_node(node, None)
        source, attributes = entry
        name_before = self.origin.given.get(node)
        name = "" if name_before is not None and node.name == name_before else node.name
        domain = source.domain
        if not (
            source.op_type == node.op_type
            and source.name == name
            and (domain == node.domain or domain == "ai.onnx")
            and _same_attributes(node, attributes)
            and source.overload == node.overload
            and _same_notes(node, source)
            and node not in self.origin.nested
        ):
            return self._new_node(node, entry)
        inputs = [value.name or "" if value is not None else "" for value in node.inputs]
        outputs = [value.name or "" for value in node.outputs]
        if source.input == inputs and source.output == outputs:
            return source
        return _rewire_node(source, inputs, outputs)

    def _new_node(
        self, node: ir.Node, entry: tuple[onnx.NodeProto, tuple[ir.Attr, ...]] | None
    ) -> onnx.NodeProto:
        source, attributes = entry or (_NO_NODE, ())
        name = node.name
        proto = onnx.NodeProto(
            op_type=node.op_type,
            input=[value.name or "" if value is not None else "" for value in node.inputs],
            output=[value.name or "" for value in node.outputs],
            name=name if name and name != self.origin.given.get(node) else None,
        )
        if node.domain:
            proto.domain = node.domain
        elif entry is not None and (source.domain == "ai.onnx" or source.HasField("domain")):
            proto.domain = source.domain if source.domain == "ai.onnx" else ""
        if node.overload:
            proto.overload = node.overload
        _write_doc(proto, source, node.doc_string)
        _write_props(proto.metadata_props, node.metadata_props, source.metadata_props)
        message_of = {id(a): m for a, m in zip(attributes, source.attribute, strict=True)}
        for attribute in node.attributes.values():
            self._attribute(proto.attribute.add(), attribute, message_of.get(id(attribute)))
        if source.device_configurations:
            proto.device_configurations.extend(source.device_configurations)
        elif node.device_configurations and self.model.ir_version >= _DEVICES_SINCE:
            proto.device_configurations.extend(
                ir.serde.serialize_node_device_configuration(entry)
                for entry in node.device_configurations
            )
        return proto

    def _attribute(
        self, proto: onnx.AttributeProto, attribute: ir.Attr, source: onnx.AttributeProto | None
    ) -> None:
        kind, value = attribute.type, attribute.value
        holds_more = kind in {_KINDS.GRAPH, _KINDS.GRAPHS, _KINDS.TENSOR, _KINDS.TENSORS}
        if source is not None and not (holds_more and value is not None):
            proto.CopyFrom(source)
            return
        proto.name = attribute.name
        proto.type = kind.value  # pyright: ignore[reportAttributeAccessIssue] the same numbers
        if attribute.doc_string:
            proto.doc_string = attribute.doc_string
        if attribute.is_ref():
            proto.ref_attr_name = attribute.ref_attr_name or ""
        elif value is not None:
            self._value(proto, kind, value)

    def _value(self, proto: onnx.AttributeProto, kind: ir.AttributeType, value: Any) -> None:
        if kind in _FIELDS:
            setattr(proto, _FIELDS[kind], value)
        elif kind in _LISTS:
            getattr(proto, _LISTS[kind]).extend(value)
        elif kind is _KINDS.STRING:
            proto.s = _to_bytes(value)
        elif kind is _KINDS.STRINGS:
            proto.strings.extend(_to_bytes(entry) for entry in value)
        elif kind in _MESSAGES:
            field, several, fill = _MESSAGES[kind]
            target = getattr(proto, field)
            for entry in value if several else (value,):
                fill(self, target.add() if several else target, entry)
        else:
            raise TypeError(f"attribute {proto.name!r} has no type that ONNX knows: {kind}")

    def tensor(
        self, proto: onnx.TensorProto, tensor: ir.TensorProtocol, *, data: bool = True
    ) -> None:
        """Fill a TensorProto; `data=False` leaves raw_data to the caller."""
        _fill_tensor(proto, tensor, self.places.get(id(tensor)), data=data)

    def _initializer(
        self, proto: onnx.GraphProto, value: ir.Value, deferred: list[ir.Value] | None
    ) -> None:
        tensor = value.const_value
        if tensor is None:
            return
        if isinstance(tensor, SparseTensor):
            sparse = proto.sparse_initializer.add()
            sparse.CopyFrom(tensor.proto)
            sparse.values.name = value.name or ""
            return
        if deferred is None or id(tensor) in self.places:
            entry = proto.initializer.add()
            self.tensor(entry, tensor)
            entry.name = value.name or ""
        else:
            deferred.append(value)

    def _function(self, proto: onnx.FunctionProto, function: ir.Function) -> None:
        graph = function.graph
        note = self.origin.graphs.get(graph) or GraphOrigin(onnx.FunctionProto())
        source = note.proto if isinstance(note.proto, onnx.FunctionProto) else onnx.FunctionProto()
        proto.name, proto.domain = function.name, function.domain
        if function.overload:
            proto.overload = function.overload
        _write_doc(proto, source, graph.doc_string)
        proto.input.extend(value.name or "" for value in graph.inputs)
        proto.output.extend(value.name or "" for value in graph.outputs)
        for attribute in function.attributes.values():
            if attribute.value is None and not attribute.is_ref():
                proto.attribute.append(attribute.name)
            else:
                self._attribute(proto.attribute_proto.add(), attribute, None)
        self._nodes(proto, graph, note)
        _write_opsets(proto.opset_import, graph.opset_imports, source.opset_import)
        _write_props(proto.metadata_props, graph.metadata_props, source.metadata_props)

    def _declare_value(self, entries: Any, value: ir.Value, role: str) -> None:
        """Append the declaration of a value to the inputs, outputs or value_info of a graph."""
        note = self.origin.values.get(value)
        source: onnx.ValueInfoProto | None = getattr(note, role) if note is not None else None
        if note is None or source is None or not note.unchanged(value):
            write_info(entries.add(), value)
        else:
            entry = entries.add()
            entry.CopyFrom(source)
            if entry.name != value.name:
                entry.name = value.name or ""

    def _nodes(
        self, proto: onnx.GraphProto | onnx.FunctionProto, graph: ir.Graph, note: GraphOrigin
    ) -> None:
        """Write nodes and value_info: of what had it, and of new values whose type is known."""
        body = isinstance(proto, onnx.FunctionProto)
        values, nodes = self.origin.values, list[onnx.NodeProto]()
        if values:
            for value in dict.fromkeys((*graph.inputs, *graph.initializers.values())):
                self._known_info(proto, value, values.get(value))
        for node in graph:
            nodes.append(self.node(node))
            for value in node.outputs:
                origin = values.get(value)
                if value.is_graph_output() and not body:
                    self._known_info(proto, value, origin)
                elif origin is not None or _worth_declaring(value):
                    self._declare_value(proto.value_info, value, "info")
        proto.node.extend(nodes)
        proto.value_info.extend(note.infos)

    def _known_info(self, proto: Any, value: ir.Value, origin: ValueOrigin | None) -> None:
        """Repeat the value_info of a value declared elsewhere as well, if it still holds."""
        if origin is None or origin.info is None:
            return
        if origin.unchanged(value) or not (value.is_graph_input() or value.is_graph_output()):
            self._declare_value(proto.value_info, value, "info")

    def _annotations(self, proto: onnx.GraphProto, graph: ir.Graph, note: GraphOrigin) -> None:
        proto.quantization_annotation.extend(note.annotations)
        if not self.origin.annotated:
            return
        values = dict.fromkeys([*graph.inputs, *graph.initializers.values()])
        values.update((value, None) for node in graph for value in node.outputs)
        for value in values:
            names = value.meta.get(QUANTIZATION)
            if names:
                entry = proto.quantization_annotation.add(tensor_name=value.name or "")
                for key, name in names.items():
                    entry.quant_parameter_tensor_names.add(key=key, value=name)


def _rewire_node(source: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    """Return a copy of a node's message that reads and gives other values."""
    proto = onnx.NodeProto()
    proto.CopyFrom(source)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return proto


def _worth_declaring(value: ir.Value) -> bool:
    return bool(value.name) and (
        value.type is not None or bool(value.doc_string) or bool(value.metadata_props)
    )


def _same_attributes(node: ir.Node, attributes: tuple[ir.Attr, ...]) -> bool:
    current = node.attributes.data
    if len(current) != len(attributes):
        return False
    return not current or all(map(operator.is_, current.values(), attributes))


def _same_notes(node: ir.Node, source: onnx.NodeProto) -> bool:
    """Compare doc string and metadata."""
    doc = source.doc_string
    if doc != (node.doc_string or "") and text(doc) != node.doc_string:
        return False
    current, original = node.metadata_props, source.metadata_props
    return (not current and not original) or props(original) == current


_Fill = Callable[[ModelWriter, Any, Any], None]
_MESSAGES: dict[ir.AttributeType, tuple[str, bool, _Fill]] = {
    _KINDS.TENSOR: ("t", False, ModelWriter.tensor),
    _KINDS.TENSORS: ("tensors", True, ModelWriter.tensor),
    _KINDS.GRAPH: ("g", False, ModelWriter.graph),
    _KINDS.GRAPHS: ("graphs", True, ModelWriter.graph),
    _KINDS.SPARSE_TENSOR: ("sparse_tensor", False, lambda _, proto, value: proto.CopyFrom(value)),
    _KINDS.TYPE_PROTO: ("tp", False, lambda _, proto, value: _write_type_and_shape(proto, value)),
    _KINDS.TYPE_PROTOS: (
        "type_protos",
        True,
        lambda _, proto, value: _write_type_and_shape(proto, value),
    ),
}
"""Attribute type -> its field, whether that is a list, and what fills one message of it."""


def _fill_tensor(
    proto: onnx.TensorProto, tensor: ir.TensorProtocol, place: Place | None, *, data: bool
) -> None:
    """Fill a TensorProto.

    The message is empty. An external tensor without a new place keeps the one it has; without
    `data`, raw_data is left to the caller.
    """
    if place is None and isinstance(tensor, ir.ExternalTensor):
        place = Place(str(tensor.location), tensor.offset or 0, tensor.nbytes)
    if place is None and isinstance(tensor, ir.TensorProtoTensor) and data:
        proto.CopyFrom(tensor.raw)
        return
    if tensor.name:
        proto.name = tensor.name
    if tensor.doc_string:
        proto.doc_string = tensor.doc_string
    proto.data_type = tensor.dtype.value
    proto.dims.extend(tensor.shape.numpy())  # pyright: ignore[reportAttributeAccessIssue]
    for key, entry in tensor.metadata_props.items():
        proto.metadata_props.add(key=key, value=entry)
    if place is not None:
        refer(proto, place)
    elif tensor.dtype is ir.DataType.STRING:
        proto.string_data.extend(_to_bytes(entry) for entry in tensor.numpy().reshape(-1))
    elif data:
        proto.raw_data = tensor.tobytes()


def _write_doc(proto: Any, source: Any, doc: str | None) -> None:
    """Write a doc string; an unchanged one as the bytes that it was."""
    if doc is None:
        return
    if text(source.doc_string) == doc and source.HasField("doc_string"):
        copy_text(proto, source, "doc_string")
    else:
        proto.doc_string = doc


def _write_props(entries: Any, current: Mapping[str, str], source: Iterable[Any]) -> None:
    """Write metadata; unchanged ones exactly as they were, repeated keys included."""
    original = list(source)
    if {text(e.key): text(e.value) for e in original} == current:
        entries.extend(original)
        return
    for key, value in current.items():
        entries.add(key=key, value=value)


def _write_opsets(
    entries: Any, current: Mapping[str, int], source: Sequence[onnx.OperatorSetIdProto]
) -> None:
    """Write the imports in their original order and spelling, then the new ones."""
    left = dict(current)
    for entry in source:
        domain = "" if entry.domain == "ai.onnx" else text(entry.domain)
        if domain in left:
            copied = entries.add(version=left.pop(domain))
            if entry.HasField("domain"):
                copied.domain = entry.domain
    for domain, version in left.items():
        entries.add(domain=domain, version=version)


def _write_type_and_shape(proto: onnx.TypeProto, value: ir.TypeAndShape) -> None:
    """Fill the type of a type attribute."""
    if value.type is not None:
        write_type(proto, value.type, value.shape)  # pyright: ignore[reportArgumentType]


def _to_bytes(value: str | bytes) -> bytes:
    """Return a string attribute as it is stored."""
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)
