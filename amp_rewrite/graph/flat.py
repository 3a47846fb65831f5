"""A model as numbers: its nodes and values in execution order, and what reads and writes what.

Rewriting a model of 100,000 nodes asks a few questions of each; what costs is an object for every
one of them. A flat graph has none: nodes, values and graphs are numbers, the inputs of all nodes
stand in one list, and whatever nodes of one operator share is looked up by the operator's number.
What only few nodes are asked for (attributes, metadata, tensors) stays where it was read from, an
onnx_ir model or a ModelProto, and is fetched when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from amp_rewrite.graph.custom import CustomOperator, Customs, custom_ports
from amp_rewrite.graph.ports import Ports, ports_of
from amp_rewrite.graph.streams import Stream

Array = np.ndarray[Any, np.dtype[Any]]

ABSENT = -1
"""What stands for an input that is left out, and for a producer where there is none."""

MAIN = 0
"""The number of the main graph among the graphs of a model."""


NUMBERS_OF_CONSTANT = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attribute of Constant -> the type of the tensor that it makes of numbers."""


class Operator(NamedTuple):
    """What a node calls: an operator of a domain, or a model-local function."""

    domain: str
    op_type: str
    overload: str = ""


IDENTITY = Operator("", "Identity")


class Attribute(NamedTuple):
    """One attribute of a node.

    Attributes:
        kind: Its type, a number of onnx.AttributeProto.AttributeType.
        value: A number, a string, a list of them, a tensor, or the type string of a type; None for
            a graph and for a reference.
        reference: The attribute of the function around the node that it refers to, or "".
    """

    kind: int
    value: Any
    reference: str = ""


class Tensor(Protocol):
    """What is asked of a tensor: those of onnx_ir have it, too."""

    @property
    def dtype(self) -> Any:
        """The element type, equal to a number of onnx.TensorProto.DataType."""
        ...

    @property
    def size(self) -> int:
        """How many elements it has."""
        ...

    def numpy(self) -> Array:
        """Return the elements."""
        ...


@dataclass(slots=True)
class Body:
    """The main graph, or a graph inside a node.

    Attributes:
        owner: The node that holds it; ABSENT for the main graph.
        name: The attribute that holds it, "body", or "bodies[0]" for one of several.
        inputs: Its inputs.
        outputs: Its outputs.
        initializers: Its initializers; one that is an input, too, is in both lists.
        nodes: Its own nodes, without those inside them.
        end: The number of the first node behind it and all that is inside.
    """

    owner: int = ABSENT
    name: str = ""
    inputs: list[int] = field(default_factory=list[int])
    outputs: list[int] = field(default_factory=list[int])
    initializers: list[int] = field(default_factory=list[int])
    nodes: list[int] = field(default_factory=list[int])
    end: int = 0


class FlatFunction(NamedTuple):
    """A model-local function: its body, and the attributes that have a default."""

    graph: FlatGraph
    defaults: Mapping[str, Attribute]


@dataclass
class FlatGraph(ABC):
    """The nodes and values of a model, or of one function, by number.

    Nodes are numbered in execution order, those of a graph inside a node right behind the node.

    Attributes:
        opsets: Domain -> opset.
        ir_version: The version of the file format.
        metadata_props: The model's metadata.
        functions: The model's functions that calls run, by what calls them.
        attached: All of its functions. One that is not among `functions` is called like an operator
            that has a schema: runtimes run their kernel of it, whatever the body says.
        operators: The operators in use; nothing may call Cast, where all Casts are idle.
        bodies: The graphs; the main graph is the first.
        finished: The graphs inside nodes, each behind those inside it.
        operator: By node, the number of its operator.
        node_names: By node, its name.
        body_of: By node, its graph.
        inputs: The values that nodes read, ABSENT where an input is left out, node after node.
        input_start: By node, where its inputs begin in `inputs`; one more entry for the end.
        outputs: The values that nodes make, node after node; one without a name is one, too.
        output_start: By node, where its outputs begin in `outputs`; one more for the end.
        value_names: By value, its name.
        recorded: By value, the type string that the file records, or None.
        producer: By value, the node that makes it, or ABSENT.
        home: By value, the graph that defines it.
        metadata: Node -> its metadata, of those that have some.
        bound: The values of the main graph that training_info binds; they keep their types.
        customs: What op lists say of operators without a schema; set before types are inferred.
        known_types: What was inferred, and what lists said of operators then; see `infer.types_of`.
        idle_casts: The Casts to the type that they read. They are known as calls of Identity.
    """

    opsets: Mapping[str, int]
    ir_version: int = 0
    metadata_props: Mapping[str, str] = field(default_factory=dict[str, str])
    functions: Mapping[Operator, FlatFunction] = field(default_factory=dict[Operator, FlatFunction])
    attached: Mapping[Operator, FlatFunction] = field(default_factory=dict[Operator, FlatFunction])
    operators: list[Operator] = field(default_factory=list[Operator])
    bodies: list[Body] = field(default_factory=list[Body])
    finished: list[int] = field(default_factory=list[int])
    operator: list[int] = field(default_factory=list[int])
    node_names: list[str] = field(default_factory=list[str])
    body_of: list[int] = field(default_factory=list[int])
    inputs: list[int] = field(default_factory=list[int])
    input_start: list[int] = field(default_factory=lambda: [0])
    outputs: list[int] = field(default_factory=list[int])
    output_start: list[int] = field(default_factory=lambda: [0])
    value_names: list[str] = field(default_factory=list[str])
    recorded: list[str | None] = field(default_factory=list["str | None"])
    producer: list[int] = field(default_factory=list[int])
    home: list[int] = field(default_factory=list[int])
    metadata: dict[int, Mapping[str, str]] = field(default_factory=dict[int, "Mapping[str, str]"])
    bound: frozenset[int] = frozenset()
    customs: Customs = field(default_factory=dict[tuple[str, str], CustomOperator])
    idle_casts: list[int] = field(default_factory=list[int])
    known_types: tuple[Customs, list[str | None]] | None = field(default=None, compare=False)

    @abstractmethod
    def attributes(self, node: int) -> Mapping[str, Attribute]:
        """Return the attributes of a node, in order."""

    @abstractmethod
    def signature(self, node: int) -> tuple[tuple[str, int, bool], ...]:
        """Return the name and type of each attribute, and whether it is a reference."""

    @abstractmethod
    def spelled_attributes(self, node: int) -> Hashable:
        """Return something that nodes share only if their attributes are equal."""

    @abstractmethod
    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value, None for a free dimension; None if it is not known.

        It is what the file records; a model that was read infers what is not recorded.
        """

    def recorded_shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape that the file records."""
        return self.shape(value)

    @abstractmethod
    def initializer(self, value: int) -> Tensor | None:
        """Return the dense tensor of an initializer; None for a sparse one, or any other value."""

    @abstractmethod
    def elements(self, tensor: Tensor) -> Stream:
        """Return the elements of one of the model's tensors; nothing is read yet."""

    @abstractmethod
    def held(self, node: int) -> Tensor | None:
        """Return the dense tensor of numbers that a Constant node holds; None for any other."""

    @property
    def free_dimensions(self) -> frozenset[str]:
        """The names that inputs of the main graph give to free dimensions."""
        return frozenset()

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
        for node in idle:
            self.operator[node] = identity
        self.idle_casts += idle

    def _is_idle(self, node: int, types: Sequence[str | None]) -> bool:
        (read,), (written,) = self.inputs_of(node), self.outputs_of(node)
        is_end = self.is_output(written) and not self.uses(written)
        return types[read] is not None and types[read] == types[written] and not is_end

    def bind(self, names: frozenset[str]) -> None:
        """Let the values of the main graph that have these names be bound."""
        values = enumerate(zip(self.home, self.value_names, strict=True)) if names else ()
        self.bound = frozenset(v for v, (home, name) in values if home == MAIN and name in names)

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
        """Return the type variables of a node whose inputs have these types, by its schema.

        An operator without one has those that a list says.
        """
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
        wanted = {
            i
            for i, o in enumerate(self.operators)
            if o.domain == "" and o.op_type in operators and o not in self.functions
        }
        return [n for n, o in enumerate(self.operator) if o in wanted] if wanted else []

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


def spans(start: Sequence[int]) -> Iterator[slice]:
    """Yield the slice of each entry of a table whose entries begin at `start`."""
    return (slice(a, b) for a, b in pairwise(start))
