"""Carry a plan out on messages: what changes is copied and edited, all else stays as it was read.

apply_plan.py does the same to the objects of onnx_ir; who rewrites a file to a file needs none of
them. Tests hold the two against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorAnnotation,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.flat import ABSENT, MAIN
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.messages import declare, props, text, type_string
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.casts import CastPlan, PlannedCast, PlannedWeight, Use
from amp_rewrite.rewriting.typed_attributes import typed_attributes


@dataclass(eq=False, slots=True)
class Added:
    """A value that the rewrite adds: another one in another type.

    Attributes:
        name: Its name.
        like: The value of the model that it copies.
        dtype: Its type.
        gave: The output of the model that it took the place of, under that one's name, or ABSENT.
    """

    name: str
    like: int
    dtype: DType
    gave: int = ABSENT


Read = int | Added
"""What a node reads: a value of the model, or one that is added."""

Item = int | str
"""A node: one of the model, or the name of one that is added."""

Made = tuple[NodeProto, list[Read]]
"""A node's message, and the values that it makes."""


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer of the rewritten model.

    Attributes:
        message: Its message, without data if `stream` has them.
        stream: Its elements; None if they are in the message.
    """

    message: TensorProto
    stream: Stream | None = None


class RewrittenGraph:
    """The messages of a rewritten model's graphs."""

    def __init__(
        self, flat: FlatProto, type_graph: TypeGraph, plan: CastPlan, removed: Iterable[int]
    ) -> None:
        """Look up what concerns which node and value; nothing is copied yet.

        Args:
            flat: The model as it was read.
            type_graph: Its dataflow.
            plan: What changes.
            removed: The model's own Casts that become no-ops.
        """
        self._flat, self._graph, self._plan = flat, type_graph, plan
        self._low = {*plan.retyped, *(v for v in plan.ends if flat.is_input(v))}
        self._reads: dict[int, Read] = {}
        self._instead: dict[int, Read] = {}
        self._renamed: dict[int, str] = {}
        self._outputs: dict[tuple[int, int], Read] = {}
        self._ends = Counter(value for body in flat.bodies for value in body.outputs)
        self._behind: dict[Item, list[Item]] = {}
        self._first: dict[int, Item] = {}
        self._last_at_start: dict[int, Item] = {}
        self._instead_of_moved: dict[int, list[Item]] = {}
        self._planned: dict[str, PlannedCast | PlannedWeight] = {}
        self._added: dict[str, Added] = {}
        self._weights = {w.value: w for w in plan.weights if not w.keep_float32}
        self._copies: dict[int, list[PlannedWeight]] = {}
        self._removed = set(removed)
        self._attributes = self._retyped_attributes()
        for weight in plan.weights:
            if weight.keep_float32:
                self._copy(weight)
        for cast in plan.casts:
            self._cast(cast)
        for node in self._removed:
            source = self._read(flat.input_start[node])
            self._instead[flat.outputs_of(node)[0]] = source
        self._touched = self._touched_nodes()

    def _retyped_attributes(self) -> dict[int, list[AttributeProto]]:
        """Return, by node, the attributes that become others."""
        graph, low, plan = self._graph, self._plan.low, self._plan
        allowed, found = graph.mask(plan.vertices), dict[int, list[AttributeProto]]()
        typed = graph.where(lambda kind: bool(typed_attributes(kind)))
        for vertex in vertices_in(allowed & typed):
            names = typed_attributes(graph.kind_of(vertex))
            entries = [_number(name, low.number) for name in names]
            found.setdefault(graph.nodes[vertex], []).extend(entries)
        for vertex, saturate in plan.fills.items():
            node = graph.nodes[vertex]
            given = self._flat.attributes(node).get("value")
            fill = np.zeros(1, np.float32) if given is None else given.value.numpy()
            tensor = TensorProto(data_type=low.number, dims=fill.shape)
            tensor.raw_data = to_low(np.asarray(fill), low, saturate=saturate).tobytes()
            found.setdefault(node, []).append(_tensor("value", tensor))
        for vertex in vertices_in(allowed & graph.having(Trait.TYPED_LIKE_FIRST)):
            node = graph.nodes[vertex]
            names = [*self._flat.attributes(node), *(a.name for a in found.get(node, ()))]
            if "dtype" not in names:
                found.setdefault(node, []).append(_number("dtype", FLOAT32.number))
        return found

    def _copy(self, weight: PlannedWeight) -> None:
        """Note a low-precision copy beside a constant that something still reads as float32."""
        flat, value = self._flat, weight.value
        self._added[weight.name] = Added(weight.name, value, weight.dtype)
        if flat.producer[value] == ABSENT:
            self._copies.setdefault(flat.home[value], []).append(weight)
        else:
            self._planned[weight.name] = weight
            self._behind.setdefault(flat.producer[value], []).insert(0, weight.name)
        self._redirect(weight.uses, value, self._added[weight.name])

    def _cast(self, cast: PlannedCast) -> None:
        if cast.existing != ABSENT:
            self._instead_of_moved[cast.existing] = self._behind.pop(cast.existing, [])
            self._insert(cast.existing, cast.value)
            self._redirect(cast.uses, cast.value, self._flat.outputs_of(cast.existing)[0])
        else:
            self._planned[cast.name] = cast
            self._added[cast.name] = Added(cast.name, cast.value, cast.to)
            self._insert(cast.name, cast.value)
            self._redirect(cast.uses, cast.value, self._added[cast.name])

    def _insert(self, item: Item, value: int) -> None:
        """Put a node right behind what makes a value, or at the start of the value's graph."""
        before: Item | None = self._flat.producer[value]
        if before == ABSENT:
            body = self._flat.home[value]
            before = self._last_at_start.get(body)
            self._last_at_start[body] = item
            if before is None:
                self._first[body] = item
                return
        self._behind.setdefault(before, []).insert(0, item)

    def _redirect(self, uses: Iterable[Use], old: int, new: Read) -> None:
        for use in uses:
            if use.node != ABSENT:
                self._reads[self._flat.input_start[use.node] + use.index] = new
            else:
                self._replace_output(use.body, use.index, old, new)

    def _replace_output(self, body: int, index: int, old: int, new: Read) -> None:
        """Make `new` a graph output; in the main graph it takes over the output's name."""
        flat = self._flat
        self._outputs[body, index] = new
        self._ends[old] -= 1
        is_made = flat.producer[old] != ABSENT and not self._ends[old]
        if body == MAIN and is_made and isinstance(new, Added):
            self._renamed[old] = self._plan.inner[old]
            new.name, new.gave = flat.value_names[old], old

    def _touched_nodes(self) -> set[int]:
        """Return the nodes whose messages change; those that hold graphs are written anew."""
        flat = self._flat
        found = {flat.reader(slot) for slot in self._reads}
        for value in (*self._renamed, *self._instead):
            found |= {*flat.readers(value), flat.producer[value]}
        found |= {flat.producer[v] for v in self._weights if flat.producer[v] != ABSENT}
        return found | self._attributes.keys() | {body.owner for body in flat.bodies}

    def _read(self, slot: int) -> Read:
        """Return what is read at a position in `flat.inputs` now."""
        return self._left_of(self._reads.get(slot, self._flat.inputs[slot]))

    def _left_of(self, read: Read) -> Read:
        """Return a value, or what a removed Cast that made it reads."""
        while isinstance(read, int) and read in self._instead:
            read = self._instead[read]
        return read

    def name(self, read: Read) -> str:
        """Return the name of a value now."""
        if isinstance(read, Added):
            return read.name
        return self._renamed.get(read) or self._flat.value_names[read]

    def nodes(self, body: int, weights: Sequence[Sequence[Weight]]) -> Iterator[Made]:
        """Yield the nodes of a graph in order.

        Args:
            body: The graph.
            weights: By graph, its dense initializers, to go into the graphs inside nodes.
        """
        for item in self._in_order(body):
            if isinstance(item, str):
                yield self._addition(self._planned[item])
            elif item not in self._removed:
                yield self._node(item, weights)

    def _in_order(self, body: int) -> Iterator[Item]:
        """Yield the nodes of a graph, removed ones included, each before what was put behind it."""
        waiting = [self._first[body]] if body in self._first else []
        for node in self._flat.bodies[body].nodes:
            waiting += self._instead_of_moved.get(node, [node])
        waiting.reverse()
        while waiting:
            item = waiting.pop()
            yield item
            waiting += reversed(self._behind.get(item, ()))

    def _addition(self, planned: PlannedCast | PlannedWeight) -> Made:
        """Return a node that is added: a Cast, or a Constant in the low type."""
        made = self._added[planned.name]
        node = NodeProto(output=[made.name], name=planned.name)
        if isinstance(planned, PlannedCast):
            node.op_type = "Cast"
            node.input.append(self.name(self._left_of(planned.value)))
            node.attribute.append(_number("to", planned.to.number))
        else:
            node.op_type = "Constant"
            node.attribute.append(_tensor("value", self._converted(planned, data=True).message))
        return node, [made]

    def _node(self, node: int, weights: Sequence[Sequence[Weight]]) -> Made:
        flat = self._flat
        outputs: list[Read] = [*flat.outputs_of(node)]
        if node not in self._touched:
            return flat.nodes[node], outputs
        message = NodeProto()
        message.CopyFrom(flat.nodes[node])
        slots = range(flat.input_start[node], flat.input_start[node + 1])
        reads = [self._read(slot) for slot in slots]
        del message.input[:], message.output[:]
        message.input.extend("" if read == ABSENT else self.name(read) for read in reads)
        message.output.extend(self.name(value) for value in outputs)
        for entry in self._attributes.get(node, ()):
            _set(message, entry)
        weight = self._weights.get(outputs[0]) if len(outputs) == 1 else None  # pyright: ignore[reportArgumentType] a number
        if weight is not None:
            _drop(message, ("value_float", "value_floats"))
            _set(message, _tensor("value", self._converted(weight, data=True).message))
        self._write_bodies(message, node, weights)
        return message, outputs

    def _write_bodies(
        self, message: NodeProto, node: int, weights: Sequence[Sequence[Weight]]
    ) -> None:
        """Write the graphs inside a node anew."""
        numbers = iter(self._flat.bodies_in(node))
        for attribute in message.attribute:
            if attribute.ref_attr_name:
                continue
            if attribute.type == AttributeProto.GRAPH:
                attribute.g.CopyFrom(self._body(next(numbers), weights))
            for graph in attribute.graphs:
                graph.CopyFrom(self._body(next(numbers), weights))

    def _body(self, number: int, weights: Sequence[Sequence[Weight]]) -> GraphProto:
        made = list(self.nodes(number, weights))
        graph = self.without_nodes(number, [read for _, outputs in made for read in outputs])
        graph.node.extend(message for message, _ in made)
        graph.initializer.extend(_with_data(weight) for weight in weights[number])
        return graph

    def without_nodes(self, number: int, made: Sequence[Read]) -> GraphProto:
        """Return the message of a graph without its nodes and dense initializers.

        Args:
            number: The graph.
            made: The values that its nodes make, in order.
        """
        flat, source = self._flat, self._flat.graphs[number]
        body, graph = flat.bodies[number], GraphProto()
        for field in ("name", "doc_string"):
            if source.HasField(field):
                setattr(graph, field, text(getattr(source, field)))
        graph.metadata_props.extend(source.metadata_props)
        graph.input.extend(self._declared(v, "input") for v in body.inputs)
        for weight in self._copies.get(number, ()):
            if flat.ir_version < FIRST_IR_WITH_OVERRIDES and flat.is_input(weight.value):
                graph.input.append(self._new_info(self._added[weight.name], typed=True))
        graph.output.extend(self._output(number, i) for i in range(len(body.outputs)))
        sparse = [flat.sparse[v] for v in body.initializers if v in flat.sparse]
        graph.sparse_initializer.extend(sparse)
        graph.value_info.extend(self._infos(number, made))
        graph.value_info.extend(flat.unused.get(number, ()))
        graph.quantization_annotation.extend(self._annotations(number, made))
        return graph

    def _infos(self, number: int, made: Sequence[Read]) -> Iterator[ValueInfoProto]:
        """Yield value_info: of what had it, and of new values whose type is known."""
        flat, body = self._flat, self._flat.bodies[number]
        ends = {self._outputs.get((number, i), v) for i, v in enumerate(body.outputs)}
        for value in dict.fromkeys((*body.inputs, *body.initializers)):
            yield from self._repeated(value, flat.is_input(value) or value in ends)
        for read in made:
            if isinstance(read, Added):
                if read.gave == ABSENT and read not in ends and self._is_typed(read.like):
                    yield self._new_info(read, typed=True)
            elif read in ends:
                yield from self._repeated(read, is_end=True)
            elif read in self._renamed:
                if self._is_typed(read):
                    yield self._info(read, notes=False)
            elif read in flat.declared:
                yield self._declared(read, "info")

    def _repeated(self, value: int, is_end: bool) -> Iterator[ValueInfoProto]:
        """Yield the value_info of a value that is declared elsewhere as well, if it still holds."""
        entry = self._flat.declared.get(value)
        if entry is not None and entry.info is not None and not (is_end and self._changed(value)):
            yield self._declared(value, "info")

    def _annotations(self, number: int, made: Sequence[Read]) -> Iterator[TensorAnnotation]:
        """Yield quantization annotations: of nothing in the graph, then in order of values."""
        flat, body, source = self._flat, self._flat.bodies[number], self._flat.graphs[number]
        if isinstance(source, FunctionProto) or not source.quantization_annotation:
            return
        numbers = {flat.value_names[v]: v for v, home in enumerate(flat.home) if home == number}
        found: dict[Read, dict[str, str]] = {}
        for entry in source.quantization_annotation:
            value = numbers.get(entry.tensor_name)
            if value is None:
                yield entry
            else:
                found[value] = props(entry.quant_parameter_tensor_names)
        for value in dict.fromkeys((*body.inputs, *body.initializers, *made)):
            if found.get(value):
                annotation = TensorAnnotation(tensor_name=self.name(value))
                for key, name in found[value].items():
                    annotation.quant_parameter_tensor_names.add(key=key, value=name)
                yield annotation

    def _type(self, value: int) -> TypeProto | None:
        """Return the type that the file gives a value, or None."""
        found = [info.type for info in self._flat.messages_of(value)]
        return next((t for t in reversed(found) if t.WhichOneof("value") is not None), None)

    def _is_typed(self, value: int) -> bool:
        return self._type(value) is not None

    def _changed(self, value: int) -> bool:
        """Tell whether the type that the file gives a value becomes another one."""
        if value not in self._low and value not in self._weights:
            return False
        given = self._type(value)
        return given is not None and type_string(given, self.name(value)) is not None

    def _new_type(self, value: int) -> DType:
        """Return the type of a value that `_changed` tells to get another one."""
        weight = self._weights.get(value)
        return self._plan.low if weight is None else weight.dtype

    def _declared(self, value: int, role: str) -> ValueInfoProto:
        """Return how a value is declared: as before unless its type is another one."""
        entry = self._flat.declared.get(value)
        source = None if entry is None else getattr(entry, role)
        return self._info(value) if source is None or self._changed(value) else source

    def _output(self, body: int, index: int) -> ValueInfoProto:
        value = self._flat.bodies[body].outputs[index]
        read = self._outputs.get((body, index), value)
        if isinstance(read, int):
            if read == value or self._is_typed(read):
                return self._declared(read, "output")
            return self._new_info(Added(self.name(read), read, self._target(read)), typed=True)
        if read.gave == ABSENT:
            return self._new_info(read, typed=self._is_typed(read.like))
        entry = self._flat.declared.get(read.gave)
        recorded = self._flat.recorded[read.gave]
        is_same = recorded == f"tensor({read.dtype.onnx})" or not self._is_typed(read.gave)
        if is_same and entry is not None and entry.output is not None:
            return entry.output
        info = self._info(read.gave, dtype=read.dtype, name=read.name)
        if info.type.denotation:  # it belonged to the type
            info.type.ClearField("denotation")
        return info

    def _target(self, value: int) -> DType:
        """Return the type that a Cast of the model, which is moved, gives."""
        return next(c.to for c in self._plan.casts if c.existing == self._flat.producer[value])

    def _info(
        self, value: int, *, dtype: DType | None = None, name: str = "", notes: bool = True
    ) -> ValueInfoProto:
        """Return a new declaration of a value of the model.

        Args:
            value: The value.
            dtype: Its type; None for the one that it has now.
            name: Its name; "" for the one that it has now.
            notes: Whether doc string and metadata are in it.
        """
        flat, info = self._flat, ValueInfoProto(name=name or self.name(value))
        now = self._new_type(value) if self._changed(value) else None
        element = dtype or now
        declare(
            info, flat.messages_of(value), None if element is None else element.number, notes=notes
        )
        return info

    def _new_info(self, added: Added, *, typed: bool) -> ValueInfoProto:
        """Return the declaration of a value that is added: it has the shape of another one."""
        info = ValueInfoProto(name=added.name)
        if not typed:
            return info
        like = self._info(added.like, dtype=added.dtype, notes=False)
        info.type.tensor_type.elem_type = added.dtype.number
        if like.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.CopyFrom(like.type.tensor_type.shape)
        return info

    def weights(self, number: int) -> Iterator[Weight]:
        """Yield the dense initializers of a graph in order."""
        flat = self._flat
        for value in flat.bodies[number].initializers:
            if value in self._weights:
                yield self._converted(self._weights[value])
            elif value in flat.tensors:
                tensor = flat.tensors[value]
                if tensor.location is None:
                    yield Weight(tensor.proto)
                else:
                    message = _described(tensor, tensor.proto.name, tensor.dtype)
                    yield Weight(message, tensor.stored)
        for weight in self._copies.get(number, ()):
            yield self._converted(weight)

    def _converted(self, weight: PlannedWeight, *, data: bool = False) -> Weight:
        """Return a constant in the low type; with its data in the message if `data` says so."""
        flat, low = self._flat, weight.dtype
        name = weight.name if weight.keep_float32 else flat.value_names[weight.value]
        message = _described(weight.tensor, name, low.number)
        stream = flat.elements(weight.tensor).converted(low, weight.saturate)
        converted = Weight(message, stream)
        return Weight(_with_data(converted)) if data else converted


def _described(tensor: object, name: str, number: int) -> TensorProto:
    """Return the message of a tensor without data."""
    message = TensorProto(name=name)
    if isinstance(tensor, StoredTensor):
        source = tensor.proto
        if source.doc_string:
            message.doc_string = text(source.doc_string)
        message.dims.extend(tensor.dims)
        if source.metadata_props:
            message.metadata_props.extend(source.metadata_props)
    else:
        message.dims.extend(np.shape(tensor.numpy()))  # pyright: ignore[reportAttributeAccessIssue] a tensor
    message.data_type = number
    return message


def _with_data(weight: Weight) -> TensorProto:
    is_inline = weight.message.data_location != TensorProto.EXTERNAL
    if weight.stream is not None and is_inline:
        weight.message.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
    return weight.message


def _number(name: str, number: int) -> AttributeProto:
    return AttributeProto(name=name, type=AttributeProto.INT, i=number)


def _tensor(name: str, tensor: TensorProto) -> AttributeProto:
    return AttributeProto(name=name, type=AttributeProto.TENSOR, t=tensor)


def _set(node: NodeProto, entry: AttributeProto) -> None:
    """Give a node an attribute, in the place of one of that name."""
    for attribute in node.attribute:
        if attribute.name == entry.name:
            attribute.CopyFrom(entry)
            return
    node.attribute.append(entry)


def _drop(node: NodeProto, names: Iterable[str]) -> None:
    kept = [a for a in node.attribute if a.name not in names]
    if len(kept) < len(node.attribute):
        copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)
