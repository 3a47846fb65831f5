"""Element types of every value, from the schemas alone.

A forward sweep binds type variables to the types of inputs and reads the types of outputs off them.
What is missing then comes from what the file records, or backwards from a consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amp_rewrite.graph import special_types
from amp_rewrite.graph.flat import ABSENT, MAIN, Attribute, FlatFunction, FlatGraph, Operator
from amp_rewrite.graph.ports import Ports, is_fixed
from amp_rewrite.graph.traits import Trait, has

if TYPE_CHECKING:
    import onnx_ir as ir

FlatTypes = list[str | None]
"""By value, its ONNX type string; None where the type cannot be known."""

Types = dict["ir.Value", str]
"""Value -> ONNX type string; a value whose type cannot be known is absent."""

_Key = tuple[object, ...]
_Inputs = tuple[str | None, ...]


def infer(
    graph: FlatGraph,
    inputs: Sequence[str | None] = (),
    attributes: Mapping[str, Attribute] | None = None,
) -> FlatTypes:
    """Return the type of every value of a model, those of graphs inside nodes included.

    The bodies of model-local functions are not included: they have one set of types per call, which
    gives the types of its `inputs`, and its `attributes`.
    """
    return _Inference(graph, attributes or {}).run(inputs)


def types_of(graph: FlatGraph) -> FlatTypes:
    """Return what `infer` does of a model; it is inferred once, and must not be changed."""
    known = graph.known_types
    if known is None or known[0] != graph.customs:
        known = graph.known_types = graph.customs, infer(graph)
    return known[1]


@dataclass
class _Inference:
    graph: FlatGraph
    bound: Mapping[str, Attribute] = field(default_factory=dict)
    calls: dict[_Key, tuple[str | None, ...]] = field(default_factory=dict)
    incomplete: list[int] = field(default_factory=list)
    by_schema: dict[_Key, tuple[str, ...]] = field(default_factory=dict)
    special: dict[tuple[object, ...], Sequence[str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.types: FlatTypes = [None] * self.graph.n_values

    def run(self, inputs: Sequence[str | None] = ()) -> FlatTypes:
        self.sweep(MAIN, inputs)
        self._fill_gaps()
        return self.types

    def sweep(self, number: int, inputs: Sequence[str | None] = ()) -> None:
        body, recorded, types = self.graph.bodies[number], self.graph.recorded, self.types
        for value in body.initializers:
            types[value] = recorded[value]
        for index, value in enumerate(body.inputs):
            input_type = inputs[index] if index < len(inputs) else None
            types[value] = input_type or recorded[value] or types[value]
        self._nodes(body.nodes)

    def _nodes(self, nodes: Sequence[int]) -> None:
        """Infer the outputs of nodes; equal calls of an operator give equal types."""
        graph, types, seen = self.graph, self.types, self.by_schema
        read, written = graph.inputs, graph.outputs
        first, behind, operator = graph.input_start, graph.output_start, graph.operator
        for node in nodes:
            start, end = behind[node], behind[node + 1]
            inputs = tuple(
                ["absent" if v < 0 else types[v] for v in read[first[node] : first[node + 1]]]
            )
            key = (operator[node], inputs, end - start)
            result_types = seen.get(key)
            if result_types is None:
                self._node(node, key, inputs, written[start:end])
            else:
                for slot, type_ in enumerate(result_types, start):
                    types[written[slot]] = type_

    def _node(self, node: int, key: _Key, inputs: _Inputs, values: list[int]) -> None:
        types, recorded, names = self.types, self.graph.recorded, self.graph.value_names
        result_types = self._special(node)
        if result_types is None:
            result_types = self._by_schema(node)
            if None not in result_types and None not in inputs:
                self.by_schema[key] = tuple(t for t in result_types if t is not None)
        complete = None not in inputs
        for value, type_ in zip(values, result_types, strict=True):
            types[value] = type_ or recorded[value]
            complete = complete and (types[value] is not None or not names[value])
        if not complete:
            self.incomplete.append(node)

    def _ports(self, node: int) -> Ports:
        return self.graph.ports_of(node, self._types_of(self.graph.inputs_of(node)))

    def _by_schema(self, node: int) -> Sequence[str | None]:
        """Return output types read off the operator's type variables."""
        ports = self._ports(node)
        bound = self._bind_variables(zip(ports.inputs, self.graph.inputs_of(node), strict=True))
        return [_output_type(ports, name, bound) for name in ports.outputs]

    def _bind_variables(self, pairs: Iterable[tuple[str, int]]) -> Mapping[str, str]:
        """Return type variables by what is given for them; two types for one say nothing."""
        bound: dict[str, str] = {}
        odd: set[str] = set()
        for name, value in pairs:
            type_ = None if value == ABSENT else self.types[value]
            if type_ is not None and bound.setdefault(name, type_) != type_:
                odd.add(name)
        for name in odd:
            del bound[name]
        return bound

    def _special(self, node: int) -> Sequence[str | None] | None:
        """Return output types of operators whose outputs do not follow from type variables."""
        graph, called = self.graph, self.graph.called(node)
        function = graph.functions.get(called)
        if function is not None:
            return self._call(node, called, function)
        if called.domain != "":
            return None
        control_flow = _CONTROL_FLOW.get(called.op_type)
        if control_flow is not None:
            return control_flow(self, node)
        rule = special_types.RULES.get(called.op_type)
        if rule is None:
            return None
        inputs, n_outputs = self._types_of(graph.inputs_of(node)), len(graph.outputs_of(node))
        spelled = graph.spelled.get(node)
        if spelled is None:
            return rule(inputs, self._attributes(node), n_outputs)
        key = (called, *inputs, spelled, n_outputs)
        if key not in self.special:
            self.special[key] = rule(inputs, self._attributes(node), n_outputs)
        return self.special[key]

    def _types_of(self, values: Sequence[int]) -> list[str | None]:
        return [None if v == ABSENT else self.types[v] for v in values]

    def _attributes(self, node: int) -> Mapping[str, Attribute]:
        """Return a node's attributes with references to a function's attributes resolved."""
        resolved: dict[str, Attribute] = {}
        for name, attribute in self.graph.attributes(node).items():
            actual = self.bound.get(attribute.reference) if attribute.reference else attribute
            if actual is not None:
                resolved[name] = actual
        return resolved

    def _call(self, node: int, called: Operator, function: FlatFunction) -> tuple[str | None, ...]:
        inputs = tuple(self._types_of(self.graph.inputs_of(node)))
        attributes = {**function.defaults, **self._attributes(node)}
        key = (called, inputs, *((n, str(a.value)) for n, a in attributes.items()))
        outputs = function.graph.main.outputs
        if key not in self.calls:
            self.calls[key] = (None,) * len(outputs)  # a recursive call knows nothing
            types = _Inference(function.graph, attributes, self.calls).run(inputs)
            self.calls[key] = tuple(types[v] for v in outputs)
        result_types, n_outputs = self.calls[key], len(self.graph.outputs_of(node))
        return result_types[:n_outputs] + (None,) * (n_outputs - len(result_types))

    def loop(self, node: int) -> list[str | None]:
        """Loop: a carried value has the type of its body output."""
        (number,) = self.graph.bodies_in(node)
        carried = self._types_of(self.graph.inputs_of(node)[2:])
        self.sweep(number, ["tensor(int64)", "tensor(bool)", *carried])
        finals = self._types_of(self.graph.bodies[number].outputs[1:])
        merged = [f or (carried[i] if i < len(carried) else None) for i, f in enumerate(finals)]
        return merged[: len(self.graph.outputs_of(node))]

    def scan(self, node: int) -> list[str | None]:
        """Scan: states and scan outputs have the types of the body outputs."""
        (number,) = self.graph.bodies_in(node)
        body = self.graph.bodies[number]
        entering = self.graph.inputs_of(node)[-len(body.inputs) :]  # Scan-8 has lengths in front
        self.sweep(number, self._types_of(entering))
        return self._types_of(body.outputs[: len(self.graph.outputs_of(node))])

    def if_(self, node: int) -> list[str | None]:
        """If: each output has the type of either branch's."""
        graph = self.graph
        names = ("then_branch", "else_branch")
        branches = {graph.bodies[number].name: number for number in graph.bodies_in(node)}
        for name in names:
            self.sweep(branches[name])
        columns = zip(*(graph.bodies[branches[n]].outputs for n in names), strict=False)
        merged = [next((self.types[v] for v in c if self.types[v]), None) for c in columns]
        return merged[: len(graph.outputs_of(node))]

    def sequence_map(self, node: int) -> list[str | None]:
        """SequenceMap: the body sees elements and gives elements."""
        (number,) = self.graph.bodies_in(node)
        input_types = self._types_of(self.graph.inputs_of(node))
        self.sweep(number, [t and (special_types.inner(t) or t) for t in input_types])
        n_outputs = len(self.graph.outputs_of(node))
        outputs = self._types_of(self.graph.bodies[number].outputs[:n_outputs])
        return [t and f"seq({t})" for t in outputs]

    def _fill_gaps(self) -> None:
        """Fill the remaining gaps from consumers, until nothing changes any more."""
        waiting = self.incomplete
        progress = True
        while progress and waiting:
            progress = sum(self._unify(node) for node in waiting) > 0
            waiting = [node for node in waiting if self._has_gaps(node)]

    def _has_gaps(self, node: int) -> bool:
        values = (*self.graph.inputs_of(node), *self.graph.outputs_of(node))
        return any(v != ABSENT and self.types[v] is None for v in values)

    def _unify(self, node: int) -> bool:
        """Give every port of a bound variable the variable's type; tell whether any was new."""
        if has(self.graph.called(node), Trait.SUBGRAPHS, Trait.SEQUENCE):
            return False
        ports, types = self._ports(node), self.types
        pairs = [
            *zip(ports.inputs, self.graph.inputs_of(node), strict=True),
            *zip(ports.outputs, self.graph.outputs_of(node), strict=True),
        ]
        bound = self._bind_variables(pairs)
        changed = False
        for name, value in pairs:
            type_ = name if is_fixed(name) else bound.get(name)
            if value != ABSENT and type_ is not None and types[value] is None:
                types[value] = type_
                changed = True
        return changed


def _output_type(ports: Ports, name: str, bound: Mapping[str, str]) -> str | None:
    if is_fixed(name):
        return name
    bound_type = bound.get(name)
    if bound_type is None and ports.schema is not None:
        admitted = ports.schema.variables.get(name, ())
        if len(admitted) == 1:
            return next(iter(admitted))
    return bound_type


_CONTROL_FLOW = {
    "If": _Inference.if_,
    "Loop": _Inference.loop,
    "Scan": _Inference.scan,
    "SequenceMap": _Inference.sequence_map,
}
