"""ModelProto -> FlatGraph: one sweep that numbers and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import AttributeProto

from amp_rewrite.errors import GraphError
from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import (
    ABSENT,
    MAIN,
    PLAIN,
    Body,
    Declared,
    FlatFunction,
    FlatGraph,
    Operator,
    Signature,
    Spelled,
    plain,
)
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.messages import props, text, type_string
from amp_rewrite.graph.proto.missing_shapes import missing_shapes
from amp_rewrite.graph.proto.scope import Scope
from amp_rewrite.graph.proto.stored import check_tensor
from amp_rewrite.graph.schemas import has_kernels
from amp_rewrite.graph.versions import opset_imports

_MAX_DEPTH = 32  # nested graphs; protobuf refuses 100 nested messages, three a graph
_MOST_CALLS = 64  # calls inside calls; exporters nest a dozen
_SMALL = 256
"""Bytes of attributes that are worth comparing with those of other nodes."""


def number_model(proto: onnx.ModelProto, files: ExternalFiles) -> FlatGraph:
    """Return the flat graph of a model, checked; the message is left alone.

    Raises:
        GraphError: The graph is not valid ONNX.
        LoadError: External data are missing, too short or outside the model's folder.
    """
    functions: dict[Operator, FlatFunction] = {}
    attached: dict[Operator, FlatFunction] = {}
    opsets = opset_imports(proto.opset_import, "model")
    flat = FlatGraph(
        proto,
        files,
        opsets,
        proto.ir_version,
        props(proto.metadata_props),
        functions,
        attached,
        infer=missing_shapes,
    )
    unnamed = _Reader(flat).model_graph(proto.graph)
    to_name = [(flat, unnamed)]
    for function in proto.functions:
        key, read, unnamed = _read_function(flat, function)
        if key in attached:
            raise GraphError("two functions of one name", where=f"function {_called_name(key)}")
        attached[key] = read
        to_name.append((read.graph, unnamed))
    _refuse_recursion(attached)
    run = (key for key in attached if not has_kernels(*key, opsets))
    functions.update((key, attached[key]) for key in run)
    _name_nodes(to_name)
    return flat


class _Reader:
    def __init__(self, flat: FlatGraph) -> None:
        self._flat = flat
        self._called: dict[tuple[str, str, str], int] = {}
        self._types: dict[int, str | None] = {}
        # of attributes that were found to be plain: how they are spelled, and their signature
        self._plain: dict[Spelled, tuple[Spelled, Signature]] = {}
        self._unnamed: list[tuple[int, str]] = []
        self._depth = 0

    def model_graph(self, proto: onnx.GraphProto) -> list[tuple[int, str]]:
        """Read the main graph; return the nodes without a name, and what to call them."""
        self._graph(proto, None, "main graph", Body())
        return self._unnamed

    def function(self, proto: onnx.FunctionProto, where: str) -> list[tuple[int, str]]:
        flat, body = self._flat, Body()
        flat.bodies.append(body)
        flat.graphs.append(proto)
        scope = Scope(proto, where, current=len(proto.node))
        infos = {info.name: info for info in proto.value_info}
        for name in proto.input:
            body.inputs.append(self._value(name, MAIN, ABSENT))
            scope.define(name, body.inputs[-1])
            self._declare(body.inputs[-1], infos.get(name))
        self._nodes(scope, infos, MAIN)
        body.outputs = [_number_produced(name, scope) for name in proto.output]
        body.end = len(flat.nodes)
        self._note_unused(infos, scope, MAIN)
        for entry in proto.attribute_proto:
            self._check_attribute(entry, scope, ABSENT)
        return self._unnamed

    def _graph(self, proto: onnx.GraphProto, outer: Scope | None, where: str, body: Body) -> None:
        if self._depth >= _MAX_DEPTH:
            raise GraphError(
                "graphs are nested too deep", where=where, expected=f"at most {_MAX_DEPTH} levels"
            )
        self._depth += 1
        flat, number = self._flat, len(self._flat.bodies)
        flat.bodies.append(body)
        flat.graphs.append(proto)
        scope = Scope(proto, where, outer, current=len(proto.node))
        infos = {info.name: info for info in proto.value_info}
        body.inputs = [self._input(info, scope, number) for info in proto.input]
        body.initializers = self._initializers(proto, scope, infos, number)
        self._nodes(scope, infos, number)
        body.outputs = [self._output(info, scope) for info in proto.output]
        body.end = len(flat.nodes)
        self._note_unused(infos, scope, number)
        if outer is not None:
            flat.finished.append(number)
        self._depth -= 1

    def _nodes(self, scope: Scope, infos: Mapping[str, onnx.ValueInfoProto], number: int) -> None:
        """Read the nodes in order; every name must be defined before it is used.

        This is half of the time of reading a model, so that nothing is called for a plain node.
        """
        flat, number_of, resolve, called = self._flat, scope.values, scope.resolve, self._called
        own, inputs, nodes = flat.bodies[number].nodes, flat.inputs, flat.nodes
        value_names, recorded, producer = flat.value_names, flat.recorded, flat.producer
        home, outputs, output_start = flat.home, flat.outputs, flat.output_start
        input_start = flat.input_start
        operators, node_names, body_of = flat.operator, flat.node_names, flat.body_of
        borrowed = scope.borrowed
        for index, proto in enumerate(scope.proto.node):
            scope.current = index
            node = len(nodes)
            own.append(node)
            inputs += [number_of[n] if n in number_of else resolve(n) for n in proto.input]
            input_start.append(len(inputs))
            nodes.append(proto)
            name = proto.name
            operator = called.get((proto.domain, proto.op_type, proto.overload))
            if operator is None or type(name) is not str:
                operator = self._operator(proto, scope)
            operators.append(operator)
            node_names.append(name)
            body_of.append(number)
            made, first = [*proto.output], len(value_names)
            value_names += made
            count = len(made)
            recorded += (None,) * count
            producer += (node,) * count
            home += (number,) * count
            outputs += range(first, first + count)
            output_start.append(len(outputs))
            if proto.metadata_props:
                flat.metadata[node] = props(proto.metadata_props)
            if proto.attribute:
                self._check_attributes(proto.attribute, scope, node)
            for value, output in enumerate(made, first):
                if output in number_of or borrowed or type(output) is not str:
                    scope.define(output, value)
                elif output:
                    number_of[output] = value
                if output in infos and output:
                    self._declare(value, infos[output])
            if not name:
                self._unnamed.append((node, f"{proto.op_type}_{index}"))
        scope.current = len(scope.proto.node)

    def _operator(self, proto: onnx.NodeProto, scope: Scope) -> int:
        """Return the number of what a node calls, which is checked, and so is the node's name."""
        name, domain, op_type = proto.name, proto.domain, proto.op_type
        if not op_type or not type(name) is type(domain) is type(op_type) is str:
            raise GraphError(
                "a node needs an operator, and names in UTF-8",
                where=scope.place(),
                found=f"operator {op_type!r} of domain {domain!r}, name {name!r}",
            )
        operators = self._flat.operators
        called = Operator("" if domain == "ai.onnx" else domain, op_type, text(proto.overload))
        number = self._called.setdefault(called, len(operators))
        self._called[domain, op_type, proto.overload] = number
        if number == len(operators):
            operators.append(called)
        return number

    def _value(self, name: str, home: int, producer: int) -> int:
        flat = self._flat
        flat.value_names.append(name)
        flat.recorded.append(None)
        flat.producer.append(producer)
        flat.home.append(home)
        return len(flat.value_names) - 1

    def _input(self, info: onnx.ValueInfoProto, scope: Scope, number: int) -> int:
        if not info.name:
            raise GraphError("a graph input has no name", where=scope.where)
        value = self._value(info.name, number, ABSENT)
        scope.define(info.name, value)
        self._record(value, info)
        self._flat.declared[value] = Declared(input=info, latest=info)
        return value

    def _output(self, info: onnx.ValueInfoProto, scope: Scope) -> int:
        value = _number_produced(info.name, scope)
        self._record(value, info)
        entry = self._flat.declared.setdefault(value, Declared())
        if entry.output is None:
            entry.output = info
        else:
            entry.again += (info,)
        if info.type.WhichOneof("value") is not None:
            entry.latest = info
        return value

    def _declare(self, value: int, info: onnx.ValueInfoProto | None) -> None:
        if info is not None:
            self._record(value, info)
            self._flat.declared[value] = Declared(info=info, latest=info)

    def _record(self, value: int, info: onnx.ValueInfoProto) -> None:
        if info.type.WhichOneof("value") == "tensor_type":
            number = info.type.tensor_type.elem_type
            if number not in self._types:
                self._types[number] = type_string(info.type, f"value {info.name!r}")
            self._flat.recorded[value] = self._types[number]
        elif info.type.WhichOneof("value") is not None:
            self._flat.recorded[value] = type_string(info.type, f"value {info.name!r}")

    def _initializers(
        self,
        proto: onnx.GraphProto,
        scope: Scope,
        infos: Mapping[str, onnx.ValueInfoProto],
        number: int,
    ) -> list[int]:
        """Return the values of initializers: new ones, or graph inputs with a default."""
        if proto.sparse_initializer:
            raise GraphError(
                "sparse initializers are not supported",
                where=scope.where,
                found=", ".join(repr(s.values.name) for s in proto.sparse_initializer),
                remedy="store them as dense ones",
            )
        flat, number_of = self._flat, dict[str, int]()
        for entry in proto.initializer:
            name = entry.name
            if not name or name in number_of:
                what = (
                    "an initializer has no name" if not name else f"initializer {name!r} is twice"
                )
                raise GraphError(what, where=scope.where)
            tensor = check_tensor(entry, flat.files, f"{scope.where}, initializer {name!r}")
            type_, value = elements.tensor(entry.data_type), scope.values.get(name)
            if value is None:
                value = self._value(name, number, ABSENT)
                scope.define(name, value)
                if name in infos:
                    self._record(value, infos[name])
                flat.recorded[value] = type_
            elif flat.recorded[value] is None:
                flat.recorded[value] = type_
            number_of[name] = value
            flat.tensors[value] = tensor
        return list(number_of.values())

    def _note_unused(
        self, infos: Mapping[str, onnx.ValueInfoProto], scope: Scope, number: int
    ) -> None:
        """Note the value_info of names that the graph lacks, and those of graph inputs."""
        flat = self._flat
        for name, info in infos.items():
            value = scope.values.get(name)
            if value is None:
                flat.unused.setdefault(number, []).append(info)
            else:
                flat.declared.setdefault(value, Declared()).info = info

    def _check_attributes(
        self, protos: Sequence[onnx.AttributeProto], scope: Scope, node: int
    ) -> None:
        flat, is_small = self._flat, sum([proto.ByteSize() for proto in protos]) <= _SMALL
        spelled = tuple([p.SerializeToString() for p in protos]) if is_small else ()
        known = self._plain.get(spelled)
        if known is not None:
            flat.spelled[node], flat.signatures[node] = known
            return
        signature = tuple([(proto.name, proto.type, bool(proto.ref_attr_name)) for proto in protos])
        flat.signatures[node] = signature
        for proto in protos:
            if proto.type not in PLAIN or type(proto.name) is not str:
                self._check_attribute(proto, scope, node)
        if len({proto.name for proto in protos}) < len(protos):
            raise GraphError("a node has two attributes of one name", where=scope.place())
        if is_small and all(kind in PLAIN for _, kind, _ in signature):
            self._plain[spelled] = spelled, signature
            flat.spelled[node] = spelled

    def _check_attribute(self, proto: onnx.AttributeProto, scope: Scope, node: int) -> None:
        if type(proto.name) is not str:
            raise GraphError("an attribute's name is not UTF-8", where=scope.place())
        if proto.ref_attr_name:
            return
        where = f"{scope.place()}, attribute {proto.name!r}"
        if proto.type == AttributeProto.GRAPH:
            self._graph(proto.g, scope, where, Body(node, proto.name))
        elif proto.type == AttributeProto.TENSOR:
            check_tensor(proto.t, self._flat.files, where)
        elif proto.type == AttributeProto.TYPE_PROTO:
            type_string(proto.tp, where)
        elif proto.type in _UNUSED:
            raise GraphError("the attribute is of a type that no operator has", where=where)


_UNUSED = (
    *(AttributeProto.GRAPHS, AttributeProto.TENSORS),
    *(AttributeProto.SPARSE_TENSORS, AttributeProto.TYPE_PROTOS),
)
"""Types of attributes that no operator of ONNX or ONNX Runtime has."""


def _read_function(
    model: FlatGraph, proto: onnx.FunctionProto
) -> tuple[Operator, FlatFunction, list[tuple[int, str]]]:
    """Return what calls a function, the function, and its nodes without a name."""
    key = Operator(text(proto.domain), text(proto.name), text(proto.overload))
    where = f"function {_called_name(key)}"
    opsets = opset_imports(proto.opset_import, where)
    flat = FlatGraph(model.proto, model.files, opsets, functions=model.functions)
    unnamed = _Reader(flat).function(proto, where)
    defaults = {text(a.name): plain(a, model.files) for a in proto.attribute_proto}
    return key, FlatFunction(flat, defaults), unnamed


def _refuse_recursion(functions: Mapping[Operator, FlatFunction]) -> None:
    """Refuse functions that call themselves, or others too deep."""
    calls = {k: [o for o in f.graph.operators if o in functions] for k, f in functions.items()}
    sorter, levels = TopologicalSorter(calls), 0
    try:
        sorter.prepare()
    except CycleError as error:
        callee, caller, *_ = error.args[1]
        raise GraphError(
            "a function calls itself",
            where=f"function {_called_name(callee)}",
            found=f"a call in {_called_name(caller)}",
            remedy="ONNX has no recursion: use Loop",
        ) from error
    while sorter.is_active():
        sorter.done(*sorter.get_ready())
        levels += 1
    if levels > _MOST_CALLS:
        raise GraphError(
            "functions call each other too deep",
            found=f"{levels} levels",
            expected=f"at most {_MOST_CALLS}",
            remedy="inline them before, for example with onnx.inliner",
        )


def _called_name(key: Operator) -> str:
    return f"{key.domain}::{key.op_type}"


def _name_nodes(graphs: Sequence[tuple[FlatGraph, list[tuple[int, str]]]]) -> None:
    names = FreeNames(name for flat, _ in graphs for name in flat.node_names)
    for flat, unnamed in graphs:
        for node, base in unnamed:
            flat.node_names[node] = names.take(base, first=2)
            flat.given.add(node)


def _number_produced(name: str, scope: Scope) -> int:
    value = scope.values.get(name)
    if value is None:
        raise GraphError(
            f"graph output {name!r} is not produced in the graph",
            where=scope.where,
            remedy=None if scope.outer is None else "pass an outer value through an Identity node",
        )
    return value
