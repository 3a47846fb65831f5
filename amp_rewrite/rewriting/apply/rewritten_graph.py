"""Carry a plan out on messages: what changes is edited, all else stays as it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.helper import make_attribute

from amp_rewrite.graph.dataflow import TypeGraph, VertexKind, vertices_in
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.io.content import Messages
from amp_rewrite.graph.io.model_files import Place, refer
from amp_rewrite.graph.proto.external import HELD, Held
from amp_rewrite.graph.proto.messages import props, text
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.proto.stored import StoredTensor, without_data
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.special_types import TYPE_ATTRIBUTES, TYPED_LIKE_FIRST
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.versions import OPSET_OF_CASTS
from amp_rewrite.rewriting.apply.declarations import Declarations
from amp_rewrite.rewriting.apply.rewiring import Read, Rewiring
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight

if TYPE_CHECKING:
    import onnx_ir as ir

_LONG = 1 << 12
"""Bytes from which on the data of a tensor are left where they are."""


class RewrittenGraph:
    """The messages of a rewritten model, which refer to the weights that were converted."""

    def __init__(
        self, flat: FlatGraph, type_graph: TypeGraph, plan: CastPlan, removed: Iterable[int]
    ) -> None:
        """Look up what concerns which node and value; nothing is copied yet."""
        self._flat, self._plan = flat, plan
        self._wiring = Rewiring(flat, plan, removed)
        self._declarations = Declarations(self._wiring)
        self._attributes = retyped_attributes(flat, type_graph, plan)
        holders = {body.owner for body in flat.bodies}  # what holds graphs is written anew
        self._touched = self._wiring.touched() | self._attributes.keys() | holders
        self._held: list[Held] = []
        self._numbers: dict[tuple[str, int], AttributeProto] = {}

    def messages(self, metadata: Mapping[str, str]) -> Messages:
        """Return the model, with these entries of metadata added or replaced."""
        proto = self._header(metadata)
        proto.functions.extend(self._flat.proto.functions)
        self._fill(proto.graph, MAIN)
        return proto, self._flat.files.holding(self._held)

    def _header(self, metadata: Mapping[str, str]) -> ModelProto:
        """Return everything of the model except its functions and its main graph."""
        flat, source, proto = self._flat, self._flat.proto, ModelProto()
        fields = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
        for field in ("ir_version", *fields):
            if source.HasField(field):
                value = getattr(source, field)
                setattr(proto, field, text(value) if isinstance(value, bytes) else value)
        proto.opset_import.extend(source.opset_import)
        if self._plan.casts and "" not in flat.opsets:
            proto.opset_import.add(domain="", version=OPSET_OF_CASTS)
        proto.metadata_props.extend(source.metadata_props)
        if metadata:
            del proto.metadata_props[:]
            for key, entry in (props(source.metadata_props) | dict(metadata)).items():
                proto.metadata_props.add(key=key, value=entry)
        proto.training_info.extend(source.training_info)
        proto.configuration.extend(source.configuration)
        return proto

    def _initializers(self, number: int) -> Iterator[TensorProto]:
        """Yield the dense initializers of a graph, in order."""
        flat, wiring = self._flat, self._wiring
        for value in flat.bodies[number].initializers:
            if value in wiring.weights:
                yield self._converted(wiring.weights[value])
            elif value in flat.tensors:
                yield self._kept(flat.tensors[value])
        yield from map(self._converted, wiring.copies.get(number, ()))

    def _converted(self, weight: PlannedWeight) -> TensorProto:
        """Return the message of a constant in the low type."""
        message = without_data(weight.tensor.proto)
        own_name = self._flat.value_names[weight.value]
        message.name = weight.name if weight.keep_float32 else own_name
        message.data_type = weight.dtype.number
        stream = weight.tensor.stream.converted(weight.dtype, weight.saturate)
        return self._hold(message, stream, partial(_converted_object, weight, message.name))

    def _kept(self, tensor: StoredTensor) -> TensorProto:
        """Return the message of a constant that stays; long data in it are not copied."""
        is_short = tensor.location is not None or tensor.nbytes < _LONG
        if is_short or not tensor.proto.HasField("raw_data"):
            return tensor.proto
        return self._hold(without_data(tensor.proto), tensor.stored, partial(_object, tensor))

    def _hold(self, message: TensorProto, stream: Stream, tensor: Callable[[], Any]) -> TensorProto:
        refer(message, Place(HELD, len(self._flat.files.held) + len(self._held), stream.nbytes))
        self._held.append(Held(lambda: stream, tensor))
        return message

    def origins(self, body: int) -> Iterator[int]:
        """Yield, for each node in a rewritten graph in order, which it was, ABSENT if it is new."""
        for item in self._wiring.in_order(body):
            if isinstance(item, str):
                yield ABSENT
            elif item not in self._wiring.removed:
                yield item
                for inner in self._flat.bodies_in(item):
                    yield from self.origins(inner)

    def _add_nodes(self, graph: GraphProto, body: int) -> list[Read]:
        """Add the nodes of a graph in order; return the values that they make."""
        flat, wiring, made = self._flat, self._wiring, list[Read]()
        for item in wiring.in_order(body):
            if isinstance(item, str):
                made.append(self._fill_addition(graph.node.add(), item))
            elif item not in wiring.removed:
                graph.node.append(flat.nodes[item])
                outputs, is_touched = flat.outputs_of(item), item in self._touched
                made += self._changed(graph.node[-1], item) if is_touched else outputs
        return made

    def _fill_addition(self, message: NodeProto, name: str) -> Read:
        """Fill a node that is added: a Cast, what stands in front of it, or a low Constant."""
        wiring = self._wiring
        planned, result = wiring.planned[name], wiring.made_by(name)
        message.name = name
        message.output.append(wiring.name(result))
        if isinstance(planned, PlannedWeight):
            message.op_type = "Constant"
            message.attribute.append(make_attribute("value", self._converted(planned)))
            return result
        message.op_type = planned.op_type
        message.input.extend([wiring.name(wiring.left_of(value)) for value in planned.inputs])
        for key, value in planned.attributes.items():
            message.attribute.append(self._attribute(key, value))
        return result

    def _attribute(self, key: str, value: Any) -> AttributeProto:
        """Return an attribute of an added node; most Casts have the same one."""
        if type(value) is not int:
            return make_attribute(key, value)
        if (key, value) not in self._numbers:
            self._numbers[key, value] = make_attribute(key, value)
        return self._numbers[key, value]

    def _changed(self, message: NodeProto, node: int) -> list[Read]:
        """Change the message of a node; return the values that it makes."""
        flat, wiring = self._flat, self._wiring
        made = flat.outputs_of(node)
        outputs: list[Read] = [wiring.wide.get(value, value) for value in made]
        first = flat.input_start[node]
        for slot in range(first, flat.input_start[node + 1]):
            read = wiring.read(slot)
            if read != flat.inputs[slot] or read in wiring.renamed:
                message.input[slot - first] = wiring.name(read)
        for k, read in enumerate(outputs):
            if read != made[k] or read in wiring.renamed:
                message.output[k] = wiring.name(read)
        for entry in self._attributes.get(node, ()):
            set_attribute(message, entry)
        weight = wiring.weights.get(outputs[0]) if len(outputs) == 1 else None  # pyright: ignore[reportArgumentType] a number
        if weight is not None:
            del message.attribute[:]
            message.attribute.append(make_attribute("value", self._converted(weight)))
        if flat.bodies_in(node):
            self._write_bodies(message, node)
        return outputs

    def _write_bodies(self, message: NodeProto, node: int) -> None:
        numbers = iter(self._flat.bodies_in(node))
        for attribute in message.attribute:
            if attribute.type == AttributeProto.GRAPH and not attribute.ref_attr_name:
                attribute.g.Clear()
                self._fill(attribute.g, next(numbers))

    def _fill(self, graph: GraphProto, number: int) -> None:
        """Fill the message of a graph."""
        flat, source, made = self._flat, self._flat.graphs[number], self._add_nodes(graph, number)
        graph.initializer.extend(self._initializers(number))
        if source.HasField("name"):
            graph.name = text(source.name)
        if source.HasField("doc_string"):
            graph.doc_string = text(source.doc_string)
        graph.metadata_props.extend(source.metadata_props)
        graph.input.extend(self._declarations.inputs(number))
        graph.output.extend(self._declarations.outputs(number))
        graph.value_info.extend(self._declarations.infos(number, made))
        graph.value_info.extend(flat.unused.get(number, ()))
        if isinstance(source, GraphProto):
            graph.quantization_annotation.extend(source.quantization_annotation)


def retyped_attributes(
    flat: FlatGraph, graph: TypeGraph, plan: CastPlan
) -> dict[int, list[AttributeProto]]:
    """Return, by node, the attributes that become others."""
    low = plan.low
    allowed, attributes = graph.mask(plan.vertices), dict[int, list[AttributeProto]]()
    typed = graph.where(lambda kind: _typed_attribute(kind) is not None)
    for vertex in vertices_in(allowed & typed):
        entry = make_attribute(_typed_attribute(graph.kind_of(vertex)) or "", low.number)
        attributes.setdefault(graph.nodes[vertex], []).append(entry)
    for node in plan.stashes:
        entry = make_attribute("stash_type", low.number)
        attributes.setdefault(node, []).append(entry)
    for node in flat.idle_casts:
        if any(allowed[vertex] for vertex in graph.vertices_of(node)):
            attributes[node] = [make_attribute("to", low.number)]
    for vertex, saturate in plan.fills.items():
        node = graph.nodes[vertex]
        attribute = flat.attributes(node).get("value")
        fill = np.zeros(1, np.float32) if attribute is None else attribute.value.numpy()
        tensor = TensorProto(data_type=low.number, dims=fill.shape)
        tensor.raw_data = to_low(np.asarray(fill), low, saturate=saturate).tobytes()
        attributes.setdefault(node, []).append(make_attribute("value", tensor))
    for vertex in vertices_in(allowed & graph.called(TYPED_LIKE_FIRST)):
        node = graph.nodes[vertex]
        names = [*flat.attributes(node), *(a.name for a in attributes.get(node, ()))]
        if "dtype" not in names:
            base = graph.base(flat.outputs_of(node)[0])
            attributes.setdefault(node, []).append(make_attribute("dtype", base.number))
    return attributes


def _typed_attribute(kind: VertexKind) -> str | None:
    """Return the attribute that repeats the element type of a kind of vertices, or None."""
    name = TYPE_ATTRIBUTES.get(operator(kind.operator))
    if name is None or kind.schema is None or name not in kind.schema.attributes:
        return None
    return name if kind.schema.outputs[-1].variable in kind.variables else None


def set_attribute(node: NodeProto, entry: AttributeProto) -> None:
    """Give a node an attribute, in the place of one of that name."""
    for attribute in node.attribute:
        if attribute.name == entry.name:
            attribute.CopyFrom(entry)
            return
    node.attribute.append(entry)


class RewrittenFlat(NamedTuple):
    """A rewritten model in numbers."""

    flat: FlatGraph
    origins: Sequence[int]


def rewritten_flat(
    flat: FlatGraph,
    type_graph: TypeGraph,
    plan: CastPlan,
    removed: Iterable[int],
    metadata: Mapping[str, str],
) -> RewrittenFlat:
    """Return the model that a plan makes of one; nodes without a name keep the given ones."""
    graph = RewrittenGraph(flat, type_graph, plan, removed)
    rewritten = number_model(*graph.messages(metadata))
    rewritten.customs = flat.customs
    origins = list(graph.origins(MAIN))
    rewritten.keep_names([flat.node_names[v] if v != ABSENT else "" for v in origins])
    for called, function in rewritten.attached.items():
        function.graph.keep_names(flat.attached[called].graph.node_names)
    return RewrittenFlat(rewritten, origins)


def _object(tensor: StoredTensor) -> ir.TensorProtocol:
    from amp_rewrite.graph.io.read import tensor_of

    return tensor_of(tensor)


def _converted_object(weight: PlannedWeight, name: str) -> ir.TensorProtocol:
    from amp_rewrite.graph.tensors import ConvertedTensor

    source = _object(weight.tensor)
    return ConvertedTensor(source, weight.dtype, saturate=weight.saturate, name=name)
