"""Carry a plan out on messages: what changes is copied and edited, all else stays as it was read.

Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto
from onnx.helper import make_attribute, make_node

from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.io.model_files import Weight
from amp_rewrite.graph.proto.messages import copy_text, text
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.apply.declarations import Declarations
from amp_rewrite.rewriting.apply.rewiring import NewNode, Read, Rewiring
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight
from amp_rewrite.rewriting.plan.typed_attributes import typed_attributes

Made = tuple[NodeProto, list[Read]]
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
        self._casts: dict[int, NodeProto] = {}  # by the type that they cast to
        holders = {body.owner for body in flat.bodies}  # what holds graphs is written anew
        self._touched = self._wiring.touched() | self._attributes.keys() | holders

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
        node = NodeProto()
        node.CopyFrom(self._without_ends(planned))
        node.name = name
        node.input.extend([wiring.name(wiring.left_of(value)) for value in planned.inputs])
        node.output.append(wiring.name(result))
        return node, [result]

    def _without_ends(self, planned: NewNode) -> NodeProto:
        """Return an added node without name, inputs and outputs: many Casts share one."""
        to = planned.attributes.get("to", ABSENT)
        node = self._casts.get(to)
        if node is None:
            node = NodeProto(op_type=planned.op_type)
            attributes = planned.attributes.items()  # make_node would sort them
            node.attribute.extend(make_attribute(key, value) for key, value in attributes)
            if to != ABSENT:
                self._casts[to] = node
        return node

    def _node(self, node: int, weights: Sequence[Sequence[Weight]]) -> Made:
        flat, wiring = self._flat, self._wiring
        outputs: list[Read] = [*flat.outputs_of(node)]
        if node not in self._touched:
            return flat.nodes[node], outputs
        outputs = [wiring.wide.get(value, value) for value in flat.outputs_of(node)]
        message = NodeProto()
        message.CopyFrom(flat.nodes[node])
        slots = range(flat.input_start[node], flat.input_start[node + 1])
        reads = [wiring.read(slot) for slot in slots]
        message.input[:] = ["" if read == ABSENT else wiring.name(read) for read in reads]
        names = [wiring.name(value) for value in outputs]
        if names != [flat.value_names[value] for value in flat.outputs_of(node)]:
            message.output[:] = names
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
        """Write the graphs inside a node anew."""
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
        body, graph = flat.bodies[number], GraphProto()
        if source.HasField("name"):
            graph.name = text(source.name)
        copy_text(graph, source, "doc_string")
        graph.metadata_props.extend(source.metadata_props)
        graph.input.extend(self._declarations.inputs(number))
        graph.output.extend(self._declarations.outputs(number))
        sparse = [flat.sparse[v] for v in body.initializers if v in flat.sparse]
        graph.sparse_initializer.extend(sparse)
        graph.value_info.extend(self._declarations.infos(number, made))
        graph.value_info.extend(flat.unused.get(number, ()))
        graph.quantization_annotation.extend(self._declarations.annotations(number))
        return graph


def retyped_attributes(
    flat: FlatGraph, graph: TypeGraph, plan: CastPlan
) -> dict[int, list[AttributeProto]]:
    """Return, by node, the attributes that become others."""
    low = plan.low
    allowed, attributes = graph.mask(plan.vertices), dict[int, list[AttributeProto]]()
    typed = graph.where(lambda kind: bool(typed_attributes(kind)))
    for vertex in vertices_in(allowed & typed):
        names = typed_attributes(graph.kind_of(vertex))
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
