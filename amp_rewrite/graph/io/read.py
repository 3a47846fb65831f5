"""FlatGraph -> onnx_ir.Model: the objects behind the numbers.

onnx_ir's own deserialiser takes 2.2 s for 100,000 nodes, creates values for undefined names, and
has no place for training_info, map types and unused value_info. This one builds what was read and
checked before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import onnx
import onnx_ir as ir

from amp_rewrite.graph.flat import ABSENT, MAIN, PLAIN, FlatGraph, string
from amp_rewrite.graph.io.typeproto import read_info, read_type
from amp_rewrite.graph.metadata_keys import GIVEN_NAME_KEY, MESSAGE_KEY
from amp_rewrite.graph.proto.external import ExternalFiles, Held
from amp_rewrite.graph.proto.messages import props, text
from amp_rewrite.graph.proto.stored import StoredTensor, check_tensor
from amp_rewrite.graph.tensors import ProtoTensor


class Objects(NamedTuple):
    """A model of onnx_ir, and by number the nodes and values of its flat graph."""

    model: ir.Model
    nodes: Sequence[ir.Node]
    values: Sequence[ir.Value]


def read_model(flat: FlatGraph) -> ir.Model:
    """Return the model that a flat graph describes; it refers to the messages."""
    return read_objects(flat).model


def shared_objects(flat: FlatGraph) -> Objects:
    """Return the objects of a flat graph, which are made once, and which nobody may change."""
    if flat.objects is None:
        flat.objects = read_objects(flat)
    return cast("Objects", flat.objects)


def read_objects(flat: FlatGraph) -> Objects:
    """Return new objects for a flat graph; they refer to the messages."""
    proto, builder = flat.proto, _Builder(flat)
    graph = builder.graph(MAIN)
    graph.opset_imports.update(flat.opsets)
    functions = [
        _Builder(inner).function(entry)
        for entry, (inner, _) in zip(proto.functions, flat.attached.values(), strict=True)
    ]
    model = ir.Model(
        graph,
        ir_version=proto.ir_version,
        producer_name=_optional(proto, "producer_name"),
        producer_version=_optional(proto, "producer_version"),
        domain=_optional(proto, "domain"),
        model_version=_optional(proto, "model_version"),
        doc_string=_optional(proto, "doc_string"),
        functions=functions,
        metadata_props=dict(flat.metadata_props) or None,
    )
    graph.meta[MESSAGE_KEY] = proto
    return Objects(model, [builder.nodes[n] for n in range(flat.n_nodes)], builder.values)


def message_of(model: ir.Model) -> onnx.ModelProto | None:
    """Return the message that a model was read from, or None."""
    return model.graph.meta.get(MESSAGE_KEY)


def _optional(proto: Any, field: str) -> Any:
    if not proto.HasField(field):
        return None
    value = getattr(proto, field)
    return text(value) if isinstance(value, bytes) else value


class _Builder:
    def __init__(self, flat: FlatGraph) -> None:
        self._flat = flat
        self.values = [ir.Value(name=name) for name in flat.value_names]
        self.nodes: dict[int, ir.Node] = {}

    def graph(self, number: int) -> ir.Graph:
        body, proto = self._flat.bodies[number], self._flat.graphs[number]
        self._declare(body.inputs)
        initializers = [self._initializer(value) for value in body.initializers]
        nodes = [self._node(node) for node in body.nodes]
        self._declare(body.outputs)
        return ir.Graph(
            [self.values[v] for v in body.inputs],
            [self.values[v] for v in body.outputs],
            nodes=nodes,
            initializers=initializers,
            doc_string=_optional(proto, "doc_string"),
            name=_optional(proto, "name"),
            metadata_props=props(proto.metadata_props) or None,
        )

    def function(self, proto: Any) -> ir.Function:
        flat, body = self._flat, self._flat.main
        self._declare(body.inputs)
        graph = ir.Graph(
            [self.values[v] for v in body.inputs],
            [self.values[v] for v in body.outputs],
            nodes=[self._node(node) for node in body.nodes],
            doc_string=_optional(proto, "doc_string"),
            opset_imports=dict(flat.opsets),
            name=text(proto.name),
            metadata_props=props(proto.metadata_props) or None,
        )
        attributes = [_attribute(entry, flat.files, iter(())) for entry in proto.attribute_proto]
        attributes += [
            ir.Attr(text(entry), ir.AttributeType.UNDEFINED, None) for entry in proto.attribute
        ]
        return ir.Function(
            text(proto.domain),
            text(proto.name),
            text(proto.overload),
            graph=graph,
            attributes=attributes,
        )

    def _node(self, number: int) -> ir.Node:
        flat, proto, values = self._flat, self._flat.nodes[number], self.values
        graphs = (self.graph(body) for body in flat.bodies_in(number))
        attributes = tuple([_attribute(entry, flat.files, graphs) for entry in proto.attribute])
        outputs = flat.outputs_of(number)
        self._declare(outputs)
        doc, overload, metadata = proto.doc_string, proto.overload, proto.metadata_props
        node = ir.Node(
            proto.domain,
            proto.op_type,
            [None if v == ABSENT else values[v] for v in flat.inputs_of(number)],
            attributes,
            overload=text(overload) if overload else "",
            outputs=[values[v] for v in outputs],
            name=flat.node_names[number],
            doc_string=text(doc) if doc else None,
            metadata_props=props(metadata) if metadata else None,
        )
        self.nodes[number] = node
        if number in flat.given:
            node.meta[GIVEN_NAME_KEY] = flat.node_names[number]
        return node

    def _initializer(self, number: int) -> ir.Value:
        flat, value = self._flat, self.values[number]
        tensor = tensor_of(flat.tensors[number])
        if isinstance(flat.tensors[number].location, Held):
            tensor = copy.copy(tensor)  # saving may rename it
        value.const_value = tensor
        if not flat.is_input(number):
            self._declare((number,))
            value.type = ir.TensorType(tensor.dtype)
            value.shape = ir.Shape(tensor.shape.numpy(), frozen=True)  # pyright: ignore[reportAttributeAccessIssue]
        return value

    def _declare(self, numbers: Any) -> None:
        for number in numbers:
            if number in self._flat.declared:
                for info in self._flat.messages_of(number):
                    read_info(info, self.values[number])


_Kind = ir.AttributeType
_PLAIN = {kind: (_Kind(kind), field) for kind, field in PLAIN.items()}
_VALUES: dict[_Kind, Callable[[Any, ExternalFiles, Iterator[ir.Graph]], Any]] = {
    _Kind.STRING: lambda p, *_: string(p.s),
    _Kind.STRINGS: lambda p, *_: [string(entry) for entry in p.strings],
    _Kind.TENSOR: lambda p, files, _: tensor_of(check_tensor(p.t, files, "attribute")),
    _Kind.GRAPH: lambda _, __, graphs: next(graphs),
    _Kind.SPARSE_TENSOR: lambda p, *_: p.sparse_tensor,
    _Kind.TYPE_PROTO: lambda p, *_: ir.TypeAndShape(*read_type(p.tp)),
}


def _attribute(
    proto: onnx.AttributeProto, files: ExternalFiles, graphs: Iterator[ir.Graph]
) -> ir.Attr:
    """Return one attribute; `graphs` are those inside the node, in the file's order."""
    name, doc = proto.name, text(proto.doc_string) if proto.doc_string else None
    if proto.ref_attr_name:
        return ir.RefAttr(name, text(proto.ref_attr_name), _Kind(proto.type), doc_string=doc)
    plain = _PLAIN.get(proto.type)
    if plain is not None:
        return ir.Attr(name, plain[0], getattr(proto, plain[1]), doc_string=doc)
    kind = _Kind(proto.type)
    reader = _VALUES.get(kind)
    value = None if reader is None else reader(proto, files, graphs)
    return ir.Attr(name, kind, value, doc_string=doc)


def tensor_of(stored: StoredTensor) -> ir.TensorProtocol:
    """Return a tensor that refers to its message or file, or to one in memory; nothing is read."""
    proto = stored.proto
    if isinstance(stored.location, Held):
        return stored.location.tensor()
    if stored.location is None and stored.dtype != onnx.TensorProto.STRING:
        return ProtoTensor(proto)
    doc_string = text(proto.doc_string) if proto.HasField("doc_string") else None
    metadata = props(proto.metadata_props) or None
    if stored.location is None:
        return ir.StringTensor(
            list(proto.string_data),
            shape=ir.Shape(proto.dims),
            name=proto.name if proto.HasField("name") else None,
            doc_string=doc_string,
            metadata_props=metadata,
        )
    folder, location, offset, length = stored.location
    return ir.ExternalTensor(
        location,
        offset,
        length,
        ir.DataType(stored.dtype),
        shape=ir.Shape(proto.dims),
        name=proto.name,
        doc_string=doc_string,
        metadata_props=metadata,
        base_dir=folder,
    )
