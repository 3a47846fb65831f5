"""The gate: what passes keeps to the operators' schemas, so that later code need not look.

Refused are wrong attributes, numbers and types of inputs and outputs, subgraphs that do not fit
their operator, calls that do not fit their function, and unknown metadata of this package.
Operators that onnx does not know pass, and so do those of com.microsoft, which change without a
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import GraphError
from amp_rewrite.graph import elements, schemas
from amp_rewrite.graph.flat import ABSENT, MAIN, FlatFunction, FlatGraph, Operator, Signature
from amp_rewrite.graph.schemas import Schema
from amp_rewrite.graph.step_metadata import check_description
from amp_rewrite.graph.step_part import check_marks
from amp_rewrite.graph.traits import Trait, has

_WITH_GRAPHS = frozenset({AttributeProto.GRAPH, AttributeProto.GRAPHS})
_INTERNAL = "__"  # attributes whose names begin so are a runtime's own; onnx lets them pass, too
_FLOAT = elements.tensor(FLOAT32.number)
_LOW = frozenset(elements.tensor(low.number) for low in LOW.values())
"""Types that pass as float32: runtimes have kernels for more of them than schemas admit."""

_SCAN_WITHOUT_LENGTHS = 9  # the opset
_REMEDY = "export the model again, or repair the node"


def admit(model: FlatGraph) -> None:
    """Refuse a model that does not keep to the schemas; modifies nothing.

    Raises:
        GraphError: It does not; the message names the node.
        StepError: It describes itself as a training step in another way than steps do.
    """
    check_description(model)
    calls = {key: _Call.of(function) for key, function in model.functions.items()}
    gate = _Gate(model, calls, in_function=False)
    gate.note_types(model.main.inputs)
    gate.check(MAIN, "main graph")
    for key, function in model.attached.items():
        gate = _Gate(function.graph, calls, in_function=True)
        where = f"function {key.domain}::{key.op_type}"
        gate.check(MAIN, where)


@dataclass(frozen=True)
class _Call:
    """The signature that a call of a model-local function must match."""

    n_inputs: int
    n_outputs: int
    types: Mapping[str, int]

    @classmethod
    def of(cls, function: FlatFunction) -> _Call:
        """Read off a function: by defaults, and by what refers to attributes."""
        graph = function.graph
        types = {name: attribute.kind for name, attribute in function.defaults.items()}
        for node in range(graph.n_nodes):
            if any(is_reference for _, _, is_reference in graph.signatures.get(node, ())):
                for attribute in graph.attributes(node).values():
                    if attribute.reference:
                        types.setdefault(attribute.reference, attribute.kind)
        return cls(len(graph.main.inputs), len(graph.main.outputs), types)


@dataclass
class _Gate:
    """Checks the graphs that share one set of opset imports.

    Attributes:
        passed: What distinguishes nodes here. A model has few kinds of nodes, so that checking one
            costs a look into this set.
        types: The types of the model's inputs and of initializers. What a file records of other
            values is often wrong, and is computed anew.
    """

    graph: FlatGraph
    calls: Mapping[Operator, _Call]
    in_function: bool
    passed: set[tuple[object, ...]] = field(default_factory=set)
    types: dict[int, str] = field(default_factory=dict)

    def check(self, body: int, where: str) -> None:
        graph, passed, type_of = self.graph, self.passed, self.types.get
        self.note_types(graph.bodies[body].initializers)
        first, behind, operator = graph.input_start, graph.output_start, graph.operator
        read, signatures = graph.inputs, graph.signatures
        for node in graph.bodies[body].nodes:
            values = read[first[node] : first[node + 1]]
            types = [None if value < 0 else type_of(value, "") for value in values]
            signature = signatures.get(node, ())
            kind = (operator[node], behind[node + 1] - behind[node], *types, signature)
            if kind not in passed:
                self._check_node(node, where)
                passed.add(kind)
            if signature and any(type_ in _WITH_GRAPHS for _, type_, _ in signature):
                self._check_subgraphs(node, where)
            if node in graph.metadata:
                check_marks(graph.metadata[node], self._place(node, where))

    def note_types(self, values: Iterable[int]) -> None:
        recorded = ((value, self.graph.recorded[value]) for value in values)
        self.types.update((value, type_) for value, type_ in recorded if type_ is not None)

    def _place(self, node: int, where: str) -> str:
        op_type = self.graph.called(node).op_type
        return f"{where}, node {self.graph.node_names[node]!r} ({op_type})"

    def _check_node(self, node: int, where: str) -> None:
        called, place = self.graph.called(node), self._place(node, where)
        call = self.calls.get(called)
        if call is not None:
            self._check_call(node, call, place)
        else:
            schema, called = self._schema(node, place), self.graph.called(node)
            if schema is not None:
                _check_attributes(called, self.graph.signatures.get(node, ()), schema, place)
                self._check_arity(node, schema, place)
                self._check_types(node, schema, place)
        for name, type_, is_reference in self.graph.signatures.get(node, ()):
            if is_reference and not (self.in_function and type_ not in _WITH_GRAPHS):
                raise GraphError(
                    f"attribute {name!r} refers to a function's attribute",
                    where=place,
                    expected="such references in functions only, and not for graphs",
                )

    def _schema(self, node: int, place: str) -> Schema | None:
        """Return the schema that binds a node, or None."""
        called = self.graph.called(node)
        if called.domain == schemas.CONTRIB_DOMAIN:
            return None
        opset = self.graph.opsets.get(called.domain)
        if opset is None and called.op_type in schemas.names(called.domain):
            raise GraphError(
                f"nothing imports an opset of {called.domain or 'ai.onnx'}",
                where=place,
                expected="an opset_import of every domain in use",
                remedy="export the model again",
            )
        schema = schemas.find(called.domain, called.op_type, opset or 1)
        if schema is None and has(called, Trait.SUBGRAPHS):
            raise GraphError(
                f"{called.op_type} is not an operator of opset {opset}",
                where=place,
                expected="a newer opset_import",
                remedy="export the model again",
            )
        return None if schema is None or schema.deprecated else schema

    def _check_subgraphs(self, node: int, where: str) -> None:
        for number in self.graph.bodies_in(node):
            inside = f"{self._place(node, where)}, attribute {self.graph.bodies[number].name!r}"
            if self.graph.called(node).domain == "":
                self._check_ends(node, number, inside)
            self.check(number, inside)

    def _check_types(self, node: int, schema: Schema, place: str) -> None:
        entered: dict[str, str] = {}
        for index, value in enumerate(self.graph.inputs_of(node)):
            type_, port = self.types.get(value), schema.input_port(index)
            if type_ is None or port is None:
                continue
            type_ = _FLOAT if type_ in _LOW else type_
            admitted = schema.variables.get(port.variable, {port.variable})
            if type_ not in admitted:
                raise GraphError(
                    f"input {port.name!r} has an impossible type",
                    where=place,
                    found=type_,
                    expected=" or ".join(sorted(admitted)),
                    remedy="insert a Cast, or raise the model's opset",
                )
            if port.homogeneous and entered.setdefault(port.variable, type_) != type_:
                raise GraphError(
                    f"input {port.name!r} has another type than what enters beside it",
                    where=place,
                    found=f"{type_} and {entered[port.variable]}",
                    expected="one type",
                    remedy="cast one of them",
                )

    def _check_call(self, node: int, call: _Call, place: str) -> None:
        for word, ends, limit in (
            ("inputs", self.graph.inputs_of(node), call.n_inputs),
            ("outputs", self.graph.outputs_of(node), call.n_outputs),
        ):
            if len(ends) > limit:
                raise GraphError(
                    f"a call has more {word} than the function",
                    where=place,
                    found=len(ends),
                    expected=f"at most {limit}",
                )
        for name, type_, _ in self.graph.signatures.get(node, ()):
            expected = call.types.get(name, type_)
            if type_ != expected:
                raise _wrong_type(name, type_, expected, place)

    def _check_arity(self, node: int, schema: Schema, place: str) -> None:
        inputs = self.graph.inputs_of(node)
        for word, ends, (least, most) in (
            ("inputs", inputs, schema.n_inputs),
            ("outputs", self.graph.outputs_of(node), schema.n_outputs),
        ):
            if not least <= len(ends) <= most:
                limits = str(least) if least == most else f"{least} to {most}"
                raise GraphError(
                    f"wrong number of {word}",
                    where=place,
                    found=len(ends),
                    expected=f"at least {least}" if most == schemas.UNLIMITED else limits,
                    remedy=_REMEDY,
                )
        for port, value in zip(schema.inputs, inputs, strict=False):
            if value == ABSENT and not port.optional and not port.variadic:
                raise GraphError(f"input {port.name!r} is missing", where=place, remedy=_REMEDY)

    def _check_ends(self, node: int, number: int, where: str) -> None:
        """Check that a subgraph takes what its operator hands over, and gives enough.

        Loop: (iteration, condition, carried...) -> (condition, carried..., scan outputs...).
        Scan: (states..., scan inputs...) -> (states..., scan outputs...); Scan-8 gets lengths, too.
        SequenceMap: (inputs...) -> (outputs...). If: () -> (outputs...).
        """
        graph, body = self.graph, self.graph.bodies[number]
        n_inputs, n_outputs = len(graph.inputs_of(node)), len(graph.outputs_of(node))
        match graph.called(node).op_type:
            case "If":
                takes, gives = 0, n_outputs
            case "Loop":
                takes, gives = n_inputs, 1 + max(n_outputs, n_inputs - 2)
            case "Scan":
                takes = n_inputs - (graph.opsets.get("", 1) < _SCAN_WITHOUT_LENGTHS)
                gives = max(n_outputs, takes - self._count_scanned(node, takes, where))
            case "SequenceMap":
                takes, gives = n_inputs, n_outputs
            case _:
                return
        if len(body.inputs) != takes or len(body.outputs) < gives:
            raise GraphError(
                "the subgraph does not fit its node",
                where=where,
                found=f"{len(body.inputs)} inputs and {len(body.outputs)} outputs",
                expected=f"{takes} inputs and at least {gives} outputs",
                remedy=_REMEDY,
            )

    def _count_scanned(self, node: int, most: int, where: str) -> int:
        """Return how many inputs a Scan walks along; all of them if its function is to tell."""
        attribute = self.graph.attributes(node)["num_scan_inputs"]
        count = most if attribute.reference else attribute.value
        if not 1 <= count <= most:
            raise GraphError(
                "num_scan_inputs is out of range", where=where, found=count, expected=f"1 to {most}"
            )
        return count


def _check_attributes(called: Operator, signature: Signature, schema: Schema, place: str) -> None:
    present = [name for name, _, _ in signature]
    for name, type_, _ in signature:
        formal = schema.attributes.get(name)
        if formal is None and not name.startswith(_INTERNAL):
            raise GraphError(
                f"unknown attribute {name!r}",
                where=place,
                expected=" or ".join(sorted(schema.attributes)) or "none",
                remedy=_REMEDY,
            )
        if formal is not None and type_ != formal.type != AttributeProto.UNDEFINED:
            raise _wrong_type(name, type_, formal.type, place)
    for name, formal in sorted(schema.attributes.items()):
        if formal.required and name not in present:
            raise GraphError(
                f"attribute {name!r} is missing",
                where=place,
                expected=AttributeProto.AttributeType.Name(formal.type),
                remedy=_REMEDY,
            )
    if called[:2] == ("", "Constant") and len(present) != 1:
        raise GraphError(
            "a Constant needs exactly one value",
            where=place,
            found=" and ".join(present) or "none",
            remedy=_REMEDY,
        )


def _wrong_type(name: str, type_: int, expected: int, place: str) -> GraphError:
    words = AttributeProto.AttributeType.Name
    return GraphError(
        f"attribute {name!r} has the wrong type",
        where=place,
        found="none" if type_ == AttributeProto.UNDEFINED else words(type_),  # pyright: ignore[reportArgumentType] it is one
        expected=words(expected),  # pyright: ignore[reportArgumentType] it is one
        remedy=_REMEDY,
    )
