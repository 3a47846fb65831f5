"""A model as numbers: its nodes and values in execution order, and what reads and writes what.

There is no object for a node or a value, since making 100,000 of them is what costs. What is asked
of few nodes (attributes, metadata, tensors) stays in the messages that the model was read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto
from onnx.helper import make_tensor_value_info

from amp_rewrite.graph.custom import Customs, custom_ports
from amp_rewrite.graph.ports import Ports, ports_of
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.mend_nodes import MendedNodes
from amp_rewrite.graph.proto.messages import shape_of, text, type_string
from amp_rewrite.graph.proto.stored import StoredTensor, check_tensor
from amp_rewrite.graph.traits import Operator

Array = np.ndarray[Any, np.dtype[Any]]

ABSENT = -1
"""The number of an input that is left out, and for a producer where there is none."""

MAIN = 0
"""The number of the main graph among the graphs of a model."""


NUMBERS_OF_CONSTANT = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attribute of Constant -> the type of the tensor that it makes of numbers."""


PLAIN: Mapping[int, str] = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
}
"""Type of an attribute -> the field that has its value; it needs no check."""


IDENTITY = Operator("", "Identity")


Signature = tuple[tuple[str, int, bool], ...]
"""The name and type of each attribute of a node, and whether it is a reference."""


Spelled = tuple[bytes, ...]
"""The attributes of a node as they are in the file."""


class Attribute(NamedTuple):
    """One attribute of a node.

    Attributes:
        value: A number, a string, a list of them, a tensor, or the type string of a type; None for
            a graph and for a reference.
        reference: The attribute of the function around the node that it refers to, or "".
    """

    kind: int
    value: Any
    reference: str = ""


@dataclass(slots=True)
class Body:
    """The main graph, or a graph inside a node.

    Attributes:
        owner: The node that holds it; ABSENT for the main graph.
        initializers: Its initializers; one that is an input, too, is in both lists.
        nodes: Its own nodes, without those inside them.
    """

    owner: int = ABSENT
    name: str = ""
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    initializers: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    end: int = 0


class FlatFunction(NamedTuple):
    """A model-local function: its body, and the attributes that have a default."""

    graph: FlatGraph
    defaults: Mapping[str, Attribute]


@dataclass(slots=True)
class Declared:
    """The messages that declare a value.

    Attributes:
        latest: The entry whose type and shape count: the last one of an output, if there is one.
            None if no entry has them; of an initializer, value_info does not count.
    """

    input: onnx.ValueInfoProto | None = None
    output: onnx.ValueInfoProto | None = None
    again: tuple[onnx.ValueInfoProto, ...] = ()
    info: onnx.ValueInfoProto | None = None
    latest: onnx.ValueInfoProto | None = None


@dataclass
class FlatGraph:
    """The nodes and values of a model, or of one function, by number; no message is copied.

    Nodes are numbered in execution order, those of a graph inside a node right after the node. A
    list has an entry for each node, value, graph or operator, which its name tells.

    Attributes:
        functions: The model's functions that calls run, by what calls them.
        attached: All of its functions. One that is not among `functions` is called like an operator
            that has a schema: runtimes run their kernel of it, whatever the body says.
        operators: The operators in use; nothing may call Cast, where all Casts are idle.
        finished: The graphs inside nodes, each behind those inside it.
        inputs: The values that nodes read, ABSENT where an input is left out, node after node.
        input_start: By node, where its inputs begin in `inputs`; one more entry for the end.
        outputs: The values that nodes make, node after node; one without a name is one, too.
        output_start: By node, where its outputs begin in `outputs`; one more for the end.
        recorded: By value, the type string that the file records, or None.
        producer: By value, the node that makes it, or ABSENT.
        home: By value, the graph that defines it.
        customs: What op lists say of operators without a schema; set before types are inferred.
        known_types: What was inferred, and what lists said of operators then; see `infer.types_of`.
        idle_casts: The Casts to the type that they read. They are known as calls of Identity.
        signatures: Node -> the name and type of each attribute, and whether it is a reference, of
            those that have some.
        spelled: Node -> its attributes as `spelled_attributes` returns them, of small plain ones.
        unused: Graph -> entries of value_info that name nothing in it.
        mended: What was done to the nodes when the model was read; `proto` is the mended one.
        lengths: Lengths of free dimensions that the user says, by the names that inputs give them.
        paintings: What was painted of it (rewriting/plan/paint_context.py), if anything was.
    """

    proto: onnx.ModelProto
    files: ExternalFiles
    opsets: Mapping[str, int]
    ir_version: int = 0
    metadata_props: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[Operator, FlatFunction] = field(default_factory=dict)
    attached: Mapping[Operator, FlatFunction] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    operator: list[int] = field(default_factory=list)
    node_names: list[str] = field(default_factory=list)
    body_of: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    input_start: list[int] = field(default_factory=lambda: [0])
    outputs: list[int] = field(default_factory=list)
    output_start: list[int] = field(default_factory=lambda: [0])
    value_names: list[str] = field(default_factory=list)
    recorded: list[str | None] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    home: list[int] = field(default_factory=list)
    metadata: dict[int, Mapping[str, str]] = field(default_factory=dict)
    customs: Customs = field(default_factory=dict)
    idle_casts: list[int] = field(default_factory=list)
    known_types: tuple[Customs, list[str | None]] | None = field(default=None, compare=False)

    signatures: dict[int, Signature] = field(default_factory=dict)
    spelled: dict[int, Spelled] = field(default_factory=dict, repr=False)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = field(default_factory=list)
    declared: dict[int, Declared] = field(default_factory=dict)
    tensors: dict[int, StoredTensor] = field(default_factory=dict)
    unused: dict[int, list[onnx.ValueInfoProto]] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    mended: MendedNodes = field(default_factory=MendedNodes)
    infer: Callable[[FlatGraph], Mapping[int, Sequence[int | None]]] | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)
    objects: object = field(default=None, repr=False, compare=False)
    paintings: object = field(default=None, repr=False, compare=False)
    _held: dict[int, StoredTensor | None] = field(default_factory=dict, repr=False, compare=False)

    def attributes(self, node: int) -> Mapping[str, Attribute]:
        """Return the attributes of a node, in order."""
        return {a.name: plain(a, self.files) for a in self.nodes[node].attribute}

    def spelled_attributes(self, node: int) -> Spelled:
        """Return something that nodes share only if their attributes are equal."""
        if node not in self.signatures:
            return ()
        known = self.spelled.get(node)
        return known or tuple([a.SerializeToString() for a in self.nodes[node].attribute])

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value: what the file records, or what inference finds.

        Where the user says how long dimensions are, what inference makes of that counts.
        """
        if self.lengths and value in self.inferred_shapes:
            return self.inferred_shapes[value]
        recorded = self.recorded_shape(value)
        return self.inferred_shapes.get(value) if recorded is None else recorded

    @cached_property
    def inferred_shapes(self) -> Mapping[int, Sequence[int | None]]:
        """By value, what inference finds; it runs when the first shape is missing.

        The body of a function has none: it is called with any shapes.
        """
        return {} if self.infer is None else self.infer(self)

    def say_lengths(self, lengths: Mapping[str, int]) -> None:
        """Let free dimensions have lengths from now on; shapes are inferred with them."""
        if lengths != self.lengths:
            self.lengths = lengths
            vars(self).pop("inferred_shapes", None)

    @property
    def free_dimensions(self) -> frozenset[str]:
        """The names that inputs of the main graph give to free dimensions."""
        inputs = (self.declared[v].input for v in self.main.inputs if v in self.declared)
        dims = (d for i in inputs if i is not None for d in i.type.tensor_type.shape.dim)
        return frozenset(dim.dim_param for dim in dims if dim.dim_param)

    @property
    def unknown_lengths(self) -> tuple[str, ...]:
        """The free dimensions whose length nobody said; first axes, the batch, if no other is."""
        first, rest = dict[str, None](), dict[str, None]()
        for entry in (self.declared[v].input for v in self.main.inputs if v in self.declared):
            for axis, dim in enumerate(entry.type.tensor_type.shape.dim if entry else ()):
                if dim.dim_param and dim.dim_param not in self.lengths:
                    (rest if axis else first)[dim.dim_param] = None
        return tuple(rest or first)

    def recorded_shape(self, value: int) -> Sequence[int | None] | None:
        """Return the recorded shape of a value, None for a free dimension; None if unknown."""
        entry = self.declared.get(value)
        if entry is not None and entry.latest is not None:
            return shape_of(entry.latest)
        held = self.tensors.get(value)
        return None if held is None else held.dims

    def keep_names(self, names: Sequence[str]) -> None:
        """Let nodes that had no name have other given ones: `names` has one for each node."""
        for node in self.given:
            self.node_names[node] = names[node] or self.node_names[node]

    def messages_of(self, value: int) -> list[onnx.ValueInfoProto]:
        """Return what declares a value; of what they say twice, the last one counts."""
        entry = self.declared.get(value, Declared())
        first, held = entry.input or entry.info, list[onnx.ValueInfoProto]()
        if entry.input is None and value in self.tensors:
            held = [make_tensor_value_info("", self.tensors[value].dtype, self.tensors[value].dims)]
        outputs = () if entry.output is None else (entry.output, *entry.again)
        return [*(() if first is None else (first,)), *held, *outputs]

    def held(self, node: int) -> StoredTensor | None:
        """Return the dense tensor of numbers that a Constant node holds; None for any other."""
        if self.called(node)[:2] != ("", "Constant"):
            return None
        if node not in self._held:  # asked for ten times while a model is painted
            self._held[node] = self._read_held(node)
        return self._held[node]

    def _read_held(self, node: int) -> StoredTensor | None:
        for name, attribute in self.attributes(node).items():
            if attribute.reference:
                return None
            if name == "value":
                return attribute.value
            if name in NUMBERS_OF_CONSTANT:
                return StoredTensor.of(np.array(attribute.value, NUMBERS_OF_CONSTANT[name]))
        return None

    @property
    def n_nodes(self) -> int:
        """How many nodes there are, those inside others included."""
        return len(self.operator)

    @property
    def n_values(self) -> int:
        """How many values there are."""
        return len(self.value_names)

    @property
    def main(self) -> Body:
        """The main graph."""
        return self.bodies[MAIN]

    def called(self, node: int) -> Operator:
        """Return what a node calls."""
        return self.operators[self.operator[node]]

    def settle_casts(self, types: Sequence[str | None]) -> None:
        """Know each Cast to the type that it reads as an Identity; `types` are by value.

        Exporters write them by the hundred. Only what nodes call changes, not what was read. One
        that does nothing but make an output stays a Cast, which reads any type.
        """
        idle = [n for n in self.nodes_of("Cast") if self._is_idle(n, types)]
        if not idle:
            return
        if IDENTITY not in self.operators:
            self.operators.append(IDENTITY)
        identity = self.operators.index(IDENTITY)
        vars(self).pop("_nodes_by_operator", None)
        for node in idle:
            self.operator[node] = identity
        self.idle_casts += idle

    def _is_idle(self, node: int, types: Sequence[str | None]) -> bool:
        (read,), (written,) = self.inputs_of(node), self.outputs_of(node)
        is_end = self.is_output(written) and not self.uses(written)
        return types[read] is not None and types[read] == types[written] and not is_end

    def is_call(self, node: int) -> bool:
        """Tell whether a node calls a model-local function."""
        return self.called(node) in self.functions

    def opset_of(self, node: int) -> int:
        """Return the opset in force for a node; 1 where its domain is not imported."""
        return self.opsets.get(self.called(node).domain, 1)

    def metadata_of(self, node: int) -> Mapping[str, str]:
        """Return the metadata of a node."""
        return self.metadata.get(node, {})

    def ports_of(self, node: int, types: Sequence[str | None]) -> Ports:
        """Return the type variables of a node whose inputs have these types, by its schema."""
        called, n_outputs = self.called(node), self.output_start[node + 1] - self.output_start[node]
        custom = self.customs.get(called[:2]) if self.customs else None
        if custom is not None:
            return custom_ports(called[:2], custom, types, n_outputs)
        return ports_of(called.domain, called.op_type, self.opset_of(node), len(types), n_outputs)

    def inputs_of(self, node: int) -> list[int]:
        """Return the values that a node reads, ABSENT where an input is left out."""
        return self.inputs[self.input_start[node] : self.input_start[node + 1]]

    def outputs_of(self, node: int) -> list[int]:
        """Return the values that a node makes."""
        return self.outputs[self.output_start[node] : self.output_start[node + 1]]

    def nodes_of(self, *operators: str) -> list[int]:
        """Return the nodes that call some operators of ai.onnx, not functions, in order."""
        return self.nodes_calling(
            i
            for i, o in enumerate(self.operators)
            if o.domain == "" and o.op_type in operators and o not in self.functions
        )

    def nodes_calling(self, numbers: Iterable[int]) -> list[int]:
        """Return the nodes that call operators of these numbers, in order."""
        return sorted(chain.from_iterable(self._nodes_by_operator.get(k, ()) for k in numbers))

    @cached_property
    def _nodes_by_operator(self) -> dict[int, list[int]]:
        numbers = np.array(self.operator, np.int64)
        order, counts = np.argsort(numbers, kind="stable").tolist(), np.bincount(numbers).tolist()
        ends = list(accumulate(counts))
        return {k: order[end - counts[k] : end] for k, end in enumerate(ends) if counts[k]}

    def bodies_in(self, node: int) -> list[int]:
        """Return the graphs inside a node, in the order of its attributes."""
        return self._graphs_inside.get(node, [])

    def uses(self, value: int) -> list[int]:
        """Return where a value is read: positions in `inputs`, in execution order."""
        start = self._use_start
        return self._use_slots[start[value] : start[value + 1]]

    def reader(self, slot: int) -> int:
        """Return the node of a position in `inputs`."""
        return self._slot_nodes[slot]

    def readers(self, value: int) -> list[int]:
        """Return the nodes that read a value, once for each input."""
        nodes = self._slot_nodes
        return [nodes[slot] for slot in self.uses(value)]

    def index(self, slot: int) -> int:
        """Return which of its node's inputs a position in `inputs` is."""
        return slot - self.input_start[self._slot_nodes[slot]]

    def is_output(self, value: int) -> bool:
        """Tell whether a value is an output of its graph."""
        return value in self._ends

    def is_initializer(self, value: int) -> bool:
        """Tell whether a value is an initializer, of whatever kind."""
        return value in self._initializers

    def is_input(self, value: int) -> bool:
        """Tell whether a value is an input of its graph."""
        return value in self._entries

    def source_key(self, node: int) -> str:
        """Return what nodes of gradients call a node: its name, or that of its first output."""
        return self.node_names[node] or self.value_names[self.outputs_of(node)[0]]

    def values_called(self, name: str) -> Iterator[int]:
        """Yield the values of a name: a graph inside a node may repeat one of another graph."""
        return (value for value, own_name in enumerate(self.value_names) if own_name == name)

    @cached_property
    def _graphs_inside(self) -> dict[int, list[int]]:
        graphs_of: dict[int, list[int]] = {}
        for number, body in enumerate(self.bodies):
            graphs_of.setdefault(body.owner, []).append(number)
        return graphs_of

    @cached_property
    def _ends(self) -> frozenset[int]:
        return frozenset(value for body in self.bodies for value in body.outputs)

    @cached_property
    def _entries(self) -> frozenset[int]:
        return frozenset(value for body in self.bodies for value in body.inputs)

    @cached_property
    def _initializers(self) -> frozenset[int]:
        return frozenset(value for body in self.bodies for value in body.initializers)

    @cached_property
    def _slot_nodes(self) -> list[int]:
        """By position in `inputs`, its node."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.input_start)).tolist()

    @cached_property
    def _use_slots(self) -> list[int]:
        """The positions in `inputs`, sorted by the value that is read there."""
        order = np.argsort(np.array(self.inputs, np.int64), kind="stable")
        return order[self.inputs.count(ABSENT) :].tolist()

    @cached_property
    def _use_start(self) -> list[int]:
        read = np.array(self.inputs, np.int64)
        counts = np.bincount(read[read != ABSENT], minlength=self.n_values)
        return [0, *np.cumsum(counts).tolist()]


def plain(proto: onnx.AttributeProto, files: ExternalFiles) -> Attribute:
    """Return an attribute, which was checked, as flat graphs have it."""
    value: Any = None
    kind = proto.type
    if proto.ref_attr_name:
        return Attribute(kind, None, text(proto.ref_attr_name))
    if kind in PLAIN:
        value = getattr(proto, PLAIN[kind])
        value = list(value) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else value
    elif kind == AttributeProto.STRING:
        value = string(proto.s)
    elif kind == AttributeProto.STRINGS:
        value = [string(entry) for entry in proto.strings]
    elif kind == AttributeProto.TENSOR:
        value = check_tensor(proto.t, files, f"attribute {proto.name!r}")
    elif kind == AttributeProto.TYPE_PROTO:
        value = type_string(proto.tp, f"attribute {proto.name!r}")
    return Attribute(kind, value)


def string(value: bytes) -> str | bytes:
    """Return the value of a string attribute; bytes that are not UTF-8 stay bytes."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
