"""Carry a plan out on messages: what changes is edited, all else stays as it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx.helper import make_attribute, make_node

from amp_rewrite.graph.dataflow import TypeGraph, VertexKind, vertices_in
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatGraph
from amp_rewrite.graph.io.model_files import Place, Weight, refer
from amp_rewrite.graph.proto.external import HELD, Held
from amp_rewrite.graph.proto.messages import props, text
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait
from amp_rewrite.graph.versions import OPSET_OF_CASTS
from amp_rewrite.rewriting.apply.declarations import Declarations
from amp_rewrite.rewriting.apply.rewiring import Read, Rewiring
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight

if TYPE_CHECKING:
    from amp_rewrite.graph.tensors import ConvertedTensor

# operators: which of their attributes repeat the type of which variable.
_TYPE_ATTRIBUTES: dict[tuple[str, str], str] = {
    ("Bernoulli", "T2"): "dtype",
    ("BlackmanWindow", "T2"): "output_datatype",
    ("Cast", "T2"): "to",
    ("DequantizeLinear", "T3"): "output_dtype",
    ("EyeLike", "T2"): "dtype",
    ("HammingWindow", "T2"): "output_datatype",
    ("HannWindow", "T2"): "output_datatype",
    ("LayerNormalization", "U"): "stash_type",
    ("MelWeightMatrix", "T3"): "output_datatype",
    ("RandomNormal", "T"): "dtype",
    ("RandomNormalLike", "T2"): "dtype",
    ("RandomUniform", "T"): "dtype",
    ("RandomUniformLike", "T2"): "dtype",
    ("SequenceEmpty", "S"): "dtype",
}
"""(operator, variable) -> the attribute that names the variable's element type.

Source: the operators' texts in https://onnx.ai/onnx/operators/.
"""

Made = tuple[NodeProto, Sequence[Read]]
"""A node's message, and the values that it makes."""


class RewrittenGraph:
    """The messages of a rewritten model's graphs."""

    def __init__(
        self,
        flat: FlatGraph,
        type_graph: TypeGraph,
        plan: CastPlan,
        removed: Iterable[int],
        convert: Callable[[PlannedWeight], Weight],
    ) -> None:
        """Look up what concerns which node and value; nothing is copied yet."""
        self._flat, self.convert = flat, convert
        self._wiring = Rewiring(flat, plan, removed)
        self._declarations = Declarations(self._wiring)
        self._attributes = retyped_attributes(flat, type_graph, plan)
        holders = {body.owner for body in flat.bodies}  # what holds graphs is written anew
        self._touched = self._wiring.touched() | self._attributes.keys() | holders
        self._numbers: dict[tuple[str, int], AttributeProto] = {}

    def all_weights(self) -> list[list[Weight]]:
        """Return the dense initializers by graph, in order."""
        return [list(self._weights(number)) for number in range(len(self._flat.bodies))]

    def _weights(self, number: int) -> Iterator[Weight]:
        flat, wiring = self._flat, self._wiring
        for value in flat.bodies[number].initializers:
            if value in wiring.weights:
                yield self.convert(wiring.weights[value])
            elif value in flat.tensors:
                tensor = flat.tensors[value]
                yield Weight(tensor.proto, None if tensor.location is None else tensor.stored)
        yield from map(self.convert, wiring.copies.get(number, ()))

    def origins(self, body: int) -> Iterator[int]:
        """Yield, for each node in a rewritten graph in order, which it was, ABSENT if it is new."""
        for item in self._wiring.in_order(body):
            if isinstance(item, str):
                yield ABSENT
            elif item not in self._wiring.removed:
                yield item
                for inner in self._flat.bodies_in(item):
                    yield from self.origins(inner)

    def nodes(self, body: int, weights: Sequence[Sequence[Weight]]) -> Iterator[Made]:
        """Yield the nodes of a graph in order; `weights`, by graph, go into graphs inside nodes."""
        for item in self._wiring.in_order(body):
            if isinstance(item, str):
                yield self._addition(item)
            elif item not in self._wiring.removed:
                yield self._node(item, weights)

    def _addition(self, name: str) -> Made:
        """Return a node that is added: a Cast, what stands in front of it, or a low Constant."""
        wiring = self._wiring
        planned, result = wiring.planned[name], wiring.made_by(name)
        if isinstance(planned, PlannedWeight):
            tensor = with_data(self.convert(planned))
            return make_node("Constant", [], [wiring.name(result)], name, value=tensor), [result]
        inputs = [wiring.name(wiring.left_of(value)) for value in planned.inputs]
        output = [wiring.name(result)]
        node = NodeProto(op_type=planned.op_type, name=name, input=inputs, output=output)
        for key, value in planned.attributes.items():  # make_node would sort them
            node.attribute.append(self._attribute(key, value))
        return node, [result]

    def _attribute(self, key: str, value: Any) -> AttributeProto:
        """Return an attribute of an added node; most Casts have the same one."""
        if type(value) is not int:
            return make_attribute(key, value)
        if (key, value) not in self._numbers:
            self._numbers[key, value] = make_attribute(key, value)
        return self._numbers[key, value]

    def _node(self, node: int, weights: Sequence[Sequence[Weight]]) -> Made:
        flat, wiring = self._flat, self._wiring
        if node not in self._touched:
            return flat.nodes[node], flat.outputs_of(node)
        made = flat.outputs_of(node)
        outputs: list[Read] = [wiring.wide.get(value, value) for value in made]
        message = NodeProto()
        message.CopyFrom(flat.nodes[node])
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
            drop_attributes(message, ("value_float", "value_floats"))
            set_attribute(message, make_attribute("value", with_data(self.convert(weight))))
        if flat.bodies_in(node):
            self._write_bodies(message, node, weights)
        return message, outputs

    def _write_bodies(
        self, message: NodeProto, node: int, weights: Sequence[Sequence[Weight]]
    ) -> None:
        numbers = iter(self._flat.bodies_in(node))
        for attribute in message.attribute:
            if attribute.type == AttributeProto.GRAPH and not attribute.ref_attr_name:
                attribute.g.CopyFrom(self.body(next(numbers), weights))

    def body(self, number: int, weights: Sequence[Sequence[Weight]]) -> GraphProto:
        """Return the message of a graph; `weights` are the dense initializers by graph."""
        nodes = list(self.nodes(number, weights))
        graph = self.without_nodes(number, [read for _, outputs in nodes for read in outputs])
        graph.node.extend(message for message, _ in nodes)
        graph.initializer.extend(with_data(weight) for weight in weights[number])
        return graph

    def without_nodes(self, number: int, made: Sequence[Read]) -> GraphProto:
        """Return the message of a graph without its nodes and dense initializers."""
        flat, source = self._flat, self._flat.graphs[number]
        graph = GraphProto()
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
        return graph


def retyped_attributes(
    flat: FlatGraph, graph: TypeGraph, plan: CastPlan
) -> dict[int, list[AttributeProto]]:
    """Return, by node, the attributes that become others."""
    low = plan.low
    allowed, attributes = graph.mask(plan.vertices), dict[int, list[AttributeProto]]()
    typed = graph.where(lambda kind: bool(_typed_attributes(kind)))
    for vertex in vertices_in(allowed & typed):
        names = _typed_attributes(graph.kind_of(vertex))
        entries = [make_attribute(name, low.number) for name in names]
        attributes.setdefault(graph.nodes[vertex], []).extend(entries)
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
    for vertex in vertices_in(allowed & graph.having(Trait.TYPED_LIKE_FIRST)):
        node = graph.nodes[vertex]
        names = [*flat.attributes(node), *(a.name for a in attributes.get(node, ()))]
        if "dtype" not in names:
            base = graph.base(flat.outputs_of(node)[0])
            attributes.setdefault(node, []).append(make_attribute("dtype", base.number))
    return attributes


def _typed_attributes(kind: VertexKind) -> list[str]:
    """Return the attributes that repeat the element type of a kind of vertices."""
    if kind.operator.domain != "":
        return []
    named = [_TYPE_ATTRIBUTES.get((kind.operator.op_type, v)) for v in kind.variables]
    return [name for name in named if name is not None]


def set_attribute(node: NodeProto, entry: AttributeProto) -> None:
    """Give a node an attribute, in the place of one of that name."""
    for attribute in node.attribute:
        if attribute.name == entry.name:
            attribute.CopyFrom(entry)
            return
    node.attribute.append(entry)


def drop_attributes(node: NodeProto, names: Iterable[str]) -> None:
    """Remove a node's attributes of these names."""
    kept = [a for a in node.attribute if a.name not in names]
    if len(kept) < len(node.attribute):
        copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)


def converted(flat: FlatGraph, weight: PlannedWeight) -> tuple[TensorProto, Stream]:
    """Return the message of a constant in the low type, without data, and its elements."""
    message = without_data(weight.tensor.proto)
    message.name = weight.name if weight.keep_float32 else flat.value_names[weight.value]
    message.data_type = weight.dtype.number
    return message, weight.tensor.stream.converted(weight.dtype, weight.saturate)


def with_data(weight: Weight) -> TensorProto:
    """Return the message of a weight with its elements in it, unless they go to a data file."""
    is_inline = weight.message.data_location != TensorProto.EXTERNAL
    if weight.stream is not None and is_inline:
        weight.message.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
    return weight.message


def without_data(source: TensorProto) -> TensorProto:
    """Return a copy of the message of a tensor, without its data and their place."""
    message = TensorProto(name=source.name, data_type=source.data_type, dims=source.dims)
    if source.doc_string:
        message.doc_string = text(source.doc_string)
    message.metadata_props.extend(source.metadata_props)
    return message


def header(flat: FlatGraph, plan: CastPlan | None, metadata: Mapping[str, str]) -> ModelProto:
    """Return everything of the rewritten model except its functions and its main graph."""
    source, proto = flat.proto, ModelProto()
    fields = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
    for field in ("ir_version", *fields):
        if source.HasField(field):
            value = getattr(source, field)
            setattr(proto, field, text(value) if isinstance(value, bytes) else value)
    proto.opset_import.extend(source.opset_import)
    if plan is not None and plan.casts and "" not in flat.opsets:
        proto.opset_import.add(domain="", version=OPSET_OF_CASTS)
    proto.metadata_props.extend(source.metadata_props)
    if metadata:
        del proto.metadata_props[:]
        for key, entry in (props(source.metadata_props) | dict(metadata)).items():
            proto.metadata_props.add(key=key, value=entry)
    proto.training_info.extend(source.training_info)
    proto.configuration.extend(source.configuration)
    return proto


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
    held: list[Held] = []

    def convert(weight: PlannedWeight) -> Weight:
        message, stream = converted(flat, weight)
        refer(message, Place(HELD, len(flat.files.held) + len(held), stream.nbytes))
        held.append(Held(lambda: stream, partial(_converted_object, weight, message.name)))
        return Weight(message)

    graph = RewrittenGraph(flat, type_graph, plan, removed, convert)
    proto = header(flat, plan, metadata)
    proto.functions.extend(flat.proto.functions)
    proto.graph.CopyFrom(graph.body(MAIN, graph.all_weights()))
    rewritten = number_model(proto, flat.files.holding(held))
    rewritten.customs = flat.customs
    origins = list(graph.origins(MAIN))
    rewritten.keep_names([flat.node_names[v] if v != ABSENT else "" for v in origins])
    for called, function in rewritten.attached.items():
        function.graph.keep_names(flat.attached[called].graph.node_names)
    return RewrittenFlat(rewritten, origins)


def _converted_object(weight: PlannedWeight, name: str) -> ConvertedTensor:
    from amp_rewrite.graph.io.read import tensor_of
    from amp_rewrite.graph.tensors import ConvertedTensor

    source = tensor_of(weight.tensor)
    return ConvertedTensor(source, weight.dtype, saturate=weight.saturate, name=name)
