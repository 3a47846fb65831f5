"""Where a model's objects came from, so that saving loses nothing that onnx_ir has no place for.

The reader notes the protobuf message behind every node, value and graph; the writer copies a
message whose object has not changed since and writes a new one for any other. The note lives in
`model.graph.meta`, so a clone by onnx_ir still finds what belongs to the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import ORIGIN_KEY


@dataclass(slots=True)
class ValueOrigin:
    """The messages that declared a value, and what they said.

    Attributes:
        dtype: The element type at that time; types can change in place.
    """

    input: onnx.ValueInfoProto | None = None
    output: onnx.ValueInfoProto | None = None
    info: onnx.ValueInfoProto | None = None
    type: ir.TypeProtocol | None = None
    dtype: ir.DataType | None = None
    shape: ir.Shape | None = None
    doc_string: str | None = None
    props: dict[str, str] = field(default_factory=dict)

    def remember(self, value: ir.Value) -> None:
        """Note the value as it is after reading."""
        self.type, self.dtype, self.shape = value.type, value.dtype, value.shape
        self.doc_string = value.doc_string
        self.props = dict(value.metadata_props)

    def unchanged(self, value: ir.Value) -> bool:
        """Return whether the value still is as it was read, its name aside."""
        return (
            value.type is self.type
            and value.dtype == self.dtype
            and value.shape is self.shape
            and value.doc_string == self.doc_string
            and value.metadata_props == self.props
        )


@dataclass(slots=True)
class GraphOrigin:
    """Parts of a GraphProto or FunctionProto that no object of the model represents.

    Attributes:
        infos: Entries of value_info that name nothing in the graph.
        annotations: Quantization annotations that name nothing in the graph.
    """

    proto: onnx.GraphProto | onnx.FunctionProto
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)
    annotations: list[onnx.TensorAnnotation] = field(default_factory=list)


NodeOrigin = tuple[onnx.NodeProto, tuple[ir.Attr, ...]]


@dataclass(slots=True)
class Origin:
    """The messages behind a model.

    Attributes:
        nodes: Node -> its message and the attributes as read, in the message's order.
        given: Node -> the name it was given because it had none.
        nested: The nodes whose attributes hold graphs or external data.
        values: Value -> the messages that declared it; only values that were declared.
        annotated: Whether any value has a quantization annotation.
    """

    model: onnx.ModelProto
    nodes: dict[ir.Node, NodeOrigin] = field(default_factory=dict)
    given: dict[ir.Node, str] = field(default_factory=dict)
    nested: set[ir.Node] = field(default_factory=set)
    values: dict[ir.Value, ValueOrigin] = field(default_factory=dict)
    graphs: dict[ir.Graph, GraphOrigin] = field(default_factory=dict)
    annotated: bool = False


def of(model: ir.Model) -> Origin | None:
    """Return the origin of a model that `load` made, or None."""
    return model.graph.meta.get(ORIGIN_KEY)


def attach(model: ir.Model, origin: Origin) -> None:
    """Note the origin of a model."""
    model.graph.meta[ORIGIN_KEY] = origin
