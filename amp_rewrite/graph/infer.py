"""Element types of every value, from the schemas alone.

A forward sweep binds each operator's type variables to the types of its inputs and reads its
outputs' types off them; what a sweep cannot know (an output of a custom operator, say) is filled
in from the types that the file records, or backwards from a consumer whose variable is bound by
another port. ONNX shape inference is not used, so its failures do not matter here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from amp_rewrite.graph import elements, special_types
from amp_rewrite.graph.ports import Ports, is_fixed, ports_at
from amp_rewrite.graph.traits import Trait, has

Types = dict[ir.Value, str]
"""Value -> ONNX type string; a value whose type cannot be known is absent."""


def infer_types(model: ir.Model) -> Types:
    """Return the type of every value of the main graph and of its subgraphs, at any depth.

    The bodies of model-local functions are not included: they have one set of types per call.
    """
    return _Inference(model, model.graph.opset_imports).run(model.graph)


@dataclass
class _Inference:
    """One run over a graph; function bodies get a run of their own."""

    model: ir.Model
    opsets: Mapping[str, int]
    bound_attributes: Mapping[str, ir.Attr] = field(default_factory=dict)
    types: Types = field(default_factory=dict)
    incomplete: list[ir.Node] = field(default_factory=list)
    by_schema: dict[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)
    calls: dict[tuple[object, ...], tuple[str | None, ...]] = field(default_factory=dict)

    def run(self, graph: ir.Graph, inputs: Sequence[str | None] = ()) -> Types:
        """Infer `graph` and everything inside it; see `sweep`."""
        self.sweep(graph, inputs)
        self._complete()
        return self.types

    def sweep(self, graph: ir.Graph, inputs: Sequence[str | None] = ()) -> None:
        """Infer one graph, whose inputs have the given types where the file records none."""
        types = self.types
        for value in graph.initializers.values():
            _record(types, value, elements.from_ir(value.type) or _constant_type(value))
        for index, value in enumerate(graph.inputs):
            given = inputs[index] if index < len(inputs) else None
            _record(types, value, given or elements.from_ir(value.type))
        for node in graph:
            self._node(node)

    def _node(self, node: ir.Node) -> None:
        types, outputs = self.types, node.outputs
        inputs = tuple(["absent" if v is None else types.get(v) for v in node.inputs])
        key = (node.domain, node.op_type, inputs, len(outputs))
        seen = self.by_schema.get(key)
        if seen is not None:
            types.update(zip(outputs, seen, strict=True))
            return
        known = self._special(node)
        if known is None:
            known = self._by_schema(node)
            if None not in known and None not in inputs:
                self.by_schema[key] = tuple(t for t in known if t is not None)
        complete = True
        for value, type_ in zip(outputs, known, strict=True):
            type_ = type_ or elements.from_ir(value.type)
            if type_ is not None:
                types[value] = type_
            elif value.name:
                complete = False
        if not complete or any(v is not None and v not in types for v in node.inputs):
            self.incomplete.append(node)

    def _by_schema(self, node: ir.Node) -> Sequence[str | None]:
        """Return output types read off the operator's type variables."""
        ports = ports_at(node, self.opsets)
        bound: dict[str, str] = {}
        types = self.types
        for name, value in zip(ports.inputs, node.inputs, strict=True):
            if value is not None and name not in bound and value in types:
                bound[name] = types[value]
        return [self._output_type(ports, name, bound) for name in ports.outputs]

    def _output_type(self, ports: Ports, name: str, bound: Mapping[str, str]) -> str | None:
        if is_fixed(name):
            return name
        found = bound.get(name)
        schema = ports.schema
        if found is None and schema is not None:
            admitted = schema.variables.get(name, ())
            if len(admitted) == 1:
                return next(iter(admitted))
        return found

    def _special(self, node: ir.Node) -> Sequence[str | None] | None:
        """Return output types of operators whose outputs do not follow from type variables."""
        functions = self.model.functions
        function = functions.get(node.op_identifier()) if functions else None
        if function is not None:
            return self._call(node, function)
        if node.domain != "":
            return None
        control_flow = _CONTROL_FLOW.get(node.op_type)
        if control_flow is not None:
            return control_flow(self, node)
        rule = special_types.RULES.get(node.op_type)
        if rule is None:
            return None
        return rule(self._types_of(node.inputs), self._attributes(node), len(node.outputs))

    def _types_of(self, values: Iterable[ir.Value | None]) -> list[str | None]:
        return [None if v is None else self.types.get(v) for v in values]

    def _attributes(self, node: ir.Node) -> Mapping[str, ir.Attr]:
        """Return a node's attributes with references to a function's attributes resolved."""
        if not self.bound_attributes and not any(a.is_ref() for a in node.attributes.values()):
            return node.attributes
        resolved: dict[str, ir.Attr] = {}
        for name, attribute in node.attributes.items():
            if not attribute.is_ref():
                resolved[name] = attribute
            elif attribute.ref_attr_name in self.bound_attributes:
                resolved[name] = self.bound_attributes[attribute.ref_attr_name or ""]
        return resolved

    def _call(self, node: ir.Node, function: ir.Function) -> tuple[str | None, ...]:
        """Return the output types of a call of a model-local function."""
        inputs = tuple(self._types_of(node.inputs))
        attributes = {name: a for name, a in function.attributes.items() if a.value is not None}
        attributes |= self._attributes(node)
        key = (function.identifier(), inputs, *((n, str(a.value)) for n, a in attributes.items()))
        if key not in self.calls:
            self.calls[key] = (None,) * len(function.outputs)  # a recursive call knows nothing
            inner = _Inference(self.model, function.opset_imports, attributes, calls=self.calls)
            types = inner.run(function.graph, inputs)
            self.calls[key] = tuple(types.get(v) for v in function.outputs)
        known = self.calls[key]
        return known[: len(node.outputs)] + (None,) * (len(node.outputs) - len(known))

    def loop(self, node: ir.Node) -> list[str | None]:
        """Loop: a carried value has the type of its body output."""
        body = node.attributes["body"].as_graph()
        carried = self._types_of(node.inputs[2:])
        self.sweep(body, ["tensor(int64)", "tensor(bool)", *carried])
        finals = self._types_of(body.outputs[1:])
        merged = [f or (carried[i] if i < len(carried) else None) for i, f in enumerate(finals)]
        return merged[: len(node.outputs)]

    def scan(self, node: ir.Node) -> list[str | None]:
        """Scan: states and scan outputs have the types of the body outputs."""
        body = node.attributes["body"].as_graph()
        entering = node.inputs[-len(body.inputs) :]  # Scan-8 has sequence_lens in front
        self.sweep(body, self._types_of(entering))
        return self._types_of(body.outputs[: len(node.outputs)])

    def if_(self, node: ir.Node) -> list[str | None]:
        """If: each output has the type of either branch's."""
        branches = [node.attributes[n].as_graph() for n in ("then_branch", "else_branch")]
        for branch in branches:
            self.sweep(branch)
        columns = zip(*(b.outputs for b in branches), strict=False)
        merged = [next((self.types[v] for v in c if v in self.types), None) for c in columns]
        return merged[: len(node.outputs)]

    def sequence_map(self, node: ir.Node) -> list[str | None]:
        """SequenceMap: the body sees elements and gives elements."""
        body = node.attributes["body"].as_graph()
        self.sweep(body, [t and (special_types.inner(t) or t) for t in self._types_of(node.inputs)])
        outputs = self._types_of(body.outputs[: len(node.outputs)])
        return [t and f"seq({t})" for t in outputs]

    def _complete(self) -> None:
        """Fill the remaining gaps from consumers, until nothing changes any more."""
        waiting = self.incomplete
        progress = True
        while progress and waiting:
            progress = False
            left: list[ir.Node] = []
            for node in waiting:
                progress |= self._unify(node)
                values = (*node.inputs, *node.outputs)
                if any(v is not None and v not in self.types for v in values):
                    left.append(node)
            waiting = left

    def _unify(self, node: ir.Node) -> bool:
        """Give every port of a bound variable the variable's type; tell whether any was new."""
        if has(node, Trait.SUBGRAPHS, Trait.SEQUENCE):
            return False
        ports = ports_at(node, self.opsets)
        pairs = [
            *zip(ports.inputs, node.inputs, strict=True),
            *zip(ports.outputs, node.outputs, strict=True),
        ]
        bound = {n: self.types[v] for n, v in pairs if v is not None and v in self.types}
        changed = False
        for name, value in pairs:
            type_ = name if is_fixed(name) else bound.get(name)
            if value is not None and type_ is not None and value not in self.types:
                self.types[value] = type_
                changed = True
        return changed


_CONTROL_FLOW = {
    "If": _Inference.if_,
    "Loop": _Inference.loop,
    "Scan": _Inference.scan,
    "SequenceMap": _Inference.sequence_map,
}


def _record(types: Types, value: ir.Value, type_: str | None) -> None:
    if type_ is not None:
        types[value] = type_


def _constant_type(value: ir.Value) -> str | None:
    tensor = value.const_value
    return None if tensor is None else elements.tensor(tensor.dtype)
