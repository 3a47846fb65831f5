"""The gate: what passes is as the operators' schemas promise, so that later code need not look.

A model is refused where

1. an operator has an attribute that its schema lacks or of another type, or lacks one that it must
   have (a subgraph is one); where a node outside functions refers to a function's attribute;
2. an operator has too few or too many inputs or outputs, or lacks an input that it must have;
3. an input or an initializer of the model has a type that an operator does not take, or another one
   than what enters the same operator at a port of the same type variable;
4. a subgraph does not take what its operator hands over, or gives less than its operator does;
5. a function is called with more inputs or outputs than it has, or with attributes of other types;
6. metadata of this package say what the package never writes.

Operators that onnx does not know pass, and so do those of com.microsoft: ONNX Runtime changes them
without raising a version. What onnx's checker refuses besides does no harm here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
from onnx import AttributeProto

from amp_rewrite.dtypes import FLOAT32, LOW
from amp_rewrite.errors import GraphError
from amp_rewrite.graph import elements, schemas
from amp_rewrite.graph.part import check_marks
from amp_rewrite.graph.schemas import Schema
from amp_rewrite.graph.step_metadata import check_description
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.graph.traverse import graphs_in, named_subgraphs

_WITH_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})
_INTERNAL = "__"  # attributes whose names begin so are a runtime's own; onnx lets them pass, too
_FLOAT = elements.tensor(FLOAT32.ir)
_LOW = frozenset(elements.tensor(low.ir) for low in LOW.values())
"""Types that pass as float32: runtimes have kernels for more of them than schemas admit."""

_SCAN_WITHOUT_LENGTHS = 9  # the opset
_REMEDY = "export the model again, or repair the node"


def admit(model: ir.Model) -> None:
    """Refuse a model that does not keep to the schemas; modifies nothing.

    Raises:
        GraphError: It does not; the message names the node.
    """
    check_description(model)
    calls = {key: _Signature.of(function) for key, function in model.functions.items()}
    gate = _Gate(model.graph.opset_imports, calls, in_function=False)
    gate.note_types(model.graph.inputs)
    gate.check(model.graph, "main graph")
    for function in model.functions.values():
        gate = _Gate(function.opset_imports, calls, in_function=True)
        gate.check(function.graph, f"function {function.domain}::{function.name}")


@dataclass(frozen=True)
class _Signature:
    """What a call of a model-local function must keep to.

    Attributes:
        n_inputs: The largest number of inputs.
        n_outputs: The largest number of outputs.
        types: Attribute -> its type, as far as the function tells.
    """

    n_inputs: int
    n_outputs: int
    types: Mapping[str, ir.AttributeType]

    @classmethod
    def of(cls, function: ir.Function) -> _Signature:
        """Read the signature off a function: by defaults, and by what refers to attributes."""
        types = {a.name: a.type for a in function.attributes.values() if a.value is not None}
        for attribute in _references(function.graph):
            types.setdefault(str(attribute.ref_attr_name), attribute.type)
        return cls(len(function.inputs), len(function.outputs), types)


def _references(graph: ir.Graph) -> Iterator[ir.Attr]:
    """Yield what refers to attributes of a function inside one of its graphs."""
    for inner in graphs_in(graph):
        for node in inner:
            yield from (a for a in node.attributes.values() if a.is_ref())


@dataclass
class _Gate:
    """Checks the graphs that share one set of opset imports.

    Attributes:
        opsets: Domain -> version.
        calls: The signatures of the model's functions.
        in_function: Whether the graphs belong to a function.
        passed: What distinguishes nodes here -> whether such nodes hold graphs. A model has few
            kinds of nodes, so that checking one costs a look into this table.
        types: The types of the model's inputs and of initializers. What a file records of other
            values is often wrong, and is computed anew.
    """

    opsets: Mapping[str, int]
    calls: Mapping[ir.OperatorIdentifier, _Signature]
    in_function: bool
    passed: dict[tuple[object, ...], bool] = field(default_factory=dict)
    types: dict[ir.Value | None, str] = field(default_factory=dict)

    def check(self, graph: ir.Graph, where: str) -> None:
        """Check a graph and those inside it."""
        self.note_types(graph.initializers.values())
        passed, type_of = self.passed, self.types.get
        for node in graph:
            attributes = node.attributes.data
            kind = (
                node.domain,
                node.op_type,
                node.overload,
                len(node.outputs),
                tuple([None if value is None else type_of(value, "") for value in node.inputs]),
                tuple([(a.name, a.type, a.is_ref()) for a in attributes.values()]),
            )
            has_graphs = passed.get(kind)
            if has_graphs is None:
                has_graphs = passed[kind] = self._check_node(node, where)
            if has_graphs:
                self._check_subgraphs(node, where)
            if node.metadata_props:
                check_marks(node, _place(node, where))

    def note_types(self, values: Iterable[ir.Value]) -> None:
        """Take note of values whose types are certain."""
        types = ((value, elements.from_ir(value.type)) for value in values)
        self.types.update((value, type_) for value, type_ in types if type_ is not None)

    def _check_node(self, node: ir.Node, where: str) -> bool:
        """Check what nodes of one kind share; return whether they hold graphs."""
        attributes = node.attributes.values()
        call = self.calls.get(node.op_identifier())
        if call is not None:
            _check_call(node, call, where)
        else:
            schema = self._schema(node, where)
            if schema is not None:
                _check_attributes(node, schema, where)
                _check_arity(node, schema, where)
                self._check_types(node, schema, where)
        for attribute in attributes:
            if attribute.is_ref() and not (self.in_function and attribute.type not in _WITH_GRAPHS):
                raise GraphError(
                    f"attribute {attribute.name!r} refers to a function's attribute",
                    where=_place(node, where),
                    expected="such references in functions only, and not for graphs",
                )
        return any(a.type in _WITH_GRAPHS for a in attributes)

    def _schema(self, node: ir.Node, where: str) -> Schema | None:
        """Return the schema that binds a node, or None."""
        if node.domain == schemas.CONTRIB_DOMAIN:
            return None
        opset = self.opsets.get(node.domain)
        if opset is None and node.op_type in schemas.names(node.domain):
            raise GraphError(
                f"nothing imports an opset of {node.domain or 'ai.onnx'}",
                where=_place(node, where),
                expected="an opset_import of every domain in use",
                remedy="export the model again",
            )
        schema = schemas.find(node.domain, node.op_type, opset or 1)
        if schema is None and has(node, Trait.SUBGRAPHS):
            raise GraphError(
                f"{node.op_type} is not an operator of opset {opset}",
                where=_place(node, where),
                expected="a newer opset_import",
                remedy="export the model again",
            )
        return None if schema is None or schema.deprecated else schema

    def _check_subgraphs(self, node: ir.Node, where: str) -> None:
        for name, graph in named_subgraphs(node):
            inside = f"{_place(node, where)}, attribute {name!r}"
            if node.domain == "":
                _check_ends(node, graph, self.opsets.get("", 1), inside)
            self.check(graph, inside)

    def _check_types(self, node: ir.Node, schema: Schema, where: str) -> None:
        entered: dict[str, str] = {}
        for index, value in enumerate(node.inputs):
            type_, port = self.types.get(value), schema.input_port(index)
            if type_ is None or port is None:
                continue
            type_ = _FLOAT if type_ in _LOW else type_
            admitted = schema.variables.get(port.variable, {port.variable})
            if type_ not in admitted:
                raise GraphError(
                    f"input {port.name!r} has an impossible type",
                    where=_place(node, where),
                    found=type_,
                    expected=" or ".join(sorted(admitted)),
                    remedy="insert a Cast, or raise the model's opset",
                )
            if port.homogeneous and entered.setdefault(port.variable, type_) != type_:
                raise GraphError(
                    f"input {port.name!r} has another type than what enters beside it",
                    where=_place(node, where),
                    found=f"{type_} and {entered[port.variable]}",
                    expected="one type",
                    remedy="cast one of them",
                )


def _check_call(node: ir.Node, function: _Signature, where: str) -> None:
    for word, ends, limit in (
        ("inputs", node.inputs, function.n_inputs),
        ("outputs", node.outputs, function.n_outputs),
    ):
        if len(ends) > limit:
            raise GraphError(
                f"a call has more {word} than the function",
                where=_place(node, where),
                found=len(ends),
                expected=f"at most {limit}",
            )
    for attribute in node.attributes.values():
        expected = function.types.get(attribute.name, attribute.type)
        if attribute.type != expected:
            raise _wrong_type(node, attribute, expected, where)


def _check_attributes(node: ir.Node, schema: Schema, where: str) -> None:
    for attribute in node.attributes.values():
        known = schema.attributes.get(attribute.name)
        if known is None and not attribute.name.startswith(_INTERNAL):
            raise GraphError(
                f"unknown attribute {attribute.name!r}",
                where=_place(node, where),
                expected=" or ".join(sorted(schema.attributes)) or "none",
                remedy=_REMEDY,
            )
        if known is not None and attribute.type != known.type:
            raise _wrong_type(node, attribute, known.type, where)
    for name, known in sorted(schema.attributes.items()):
        if known.required and name not in node.attributes:
            raise GraphError(
                f"attribute {name!r} is missing",
                where=_place(node, where),
                expected=AttributeProto.AttributeType.Name(known.type),
                remedy=_REMEDY,
            )
    if node.op_type == "Constant" and node.domain == "" and len(node.attributes) != 1:
        raise GraphError(
            "a Constant needs exactly one value",
            where=_place(node, where),
            found=" and ".join(node.attributes) or "none",
            remedy=_REMEDY,
        )


def _wrong_type(node: ir.Node, attribute: ir.Attr, expected: int, where: str) -> GraphError:
    return GraphError(
        f"attribute {attribute.name!r} has the wrong type",
        where=_place(node, where),
        found="none" if attribute.type is ir.AttributeType.UNDEFINED else attribute.type.name,
        expected=AttributeProto.AttributeType.Name(expected),
        remedy=_REMEDY,
    )


def _check_arity(node: ir.Node, schema: Schema, where: str) -> None:
    for word, ends, (least, most) in (
        ("inputs", node.inputs, schema.n_inputs),
        ("outputs", node.outputs, schema.n_outputs),
    ):
        if not least <= len(ends) <= most:
            limits = str(least) if least == most else f"{least} to {most}"
            raise GraphError(
                f"wrong number of {word}",
                where=_place(node, where),
                found=len(ends),
                expected=f"at least {least}" if most == schemas.UNLIMITED else limits,
                remedy=_REMEDY,
            )
    for port, value in zip(schema.inputs, node.inputs, strict=False):
        if value is None and not port.optional and not port.variadic:
            raise GraphError(
                f"input {port.name!r} is missing",
                where=_place(node, where),
                remedy=_REMEDY,
            )


def _check_ends(node: ir.Node, graph: ir.Graph, opset: int, where: str) -> None:
    """Check that a subgraph takes what its operator hands over, and gives enough.

    Loop: (iteration, condition, carried...) -> (condition, carried..., scan outputs...).
    Scan: (states..., scan inputs...) -> (states..., scan outputs...); Scan-8 gets lengths, too.
    SequenceMap: (inputs...) -> (outputs...). If: () -> (outputs...).
    """
    n_inputs, n_outputs = len(node.inputs), len(node.outputs)
    match node.op_type:
        case "If":
            takes, gives = 0, n_outputs
        case "Loop":
            takes, gives = n_inputs, 1 + max(n_outputs, n_inputs - 2)
        case "Scan":
            takes = n_inputs - (opset < _SCAN_WITHOUT_LENGTHS)
            gives = max(n_outputs, takes - _scanned(node, takes, where))
        case "SequenceMap":
            takes, gives = n_inputs, n_outputs
        case _:
            return
    if len(graph.inputs) != takes or len(graph.outputs) < gives:
        raise GraphError(
            "the subgraph does not fit its node",
            where=where,
            found=f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs",
            expected=f"{takes} inputs and at least {gives} outputs",
            remedy=_REMEDY,
        )


def _scanned(node: ir.Node, most: int, where: str) -> int:
    """Return how many inputs a Scan walks along; all of them if its function is to tell."""
    attribute = node.attributes["num_scan_inputs"]
    count = most if attribute.is_ref() else attribute.as_int()
    if not 1 <= count <= most:
        raise GraphError(
            "num_scan_inputs is out of range", where=where, found=count, expected=f"1 to {most}"
        )
    return count


def _place(node: ir.Node, where: str) -> str:
    return f"{where}, node {node.name!r} ({node.op_type})"
