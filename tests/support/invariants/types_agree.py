"""Invariant of element types: what a model records is what its operators' schemas say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.ports import is_fixed, ports_at, schema_variable
from amp_rewrite.graph.traits import Trait, has
from invariants.violation import Violation, graphs, known_types, named_subgraphs, place, scope_of

Problem = tuple[tuple[str, str], str]
"""((place, value), what is wrong): the same problem of another type has the same key."""


def check_types(original: ir.Model, rewritten: ir.Model) -> Iterator[Violation]:
    """Types recorded and types inferred agree, and every operator admits its types.

    Checked on the main graph and its subgraphs: each recorded type (value_info, inputs, outputs)
    against schema type inference; each port against the types that its variable admits and
    against the other ports of that variable; If branches against each other; a Loop's or Scan's
    carried values from initial input to final output. What is wrong in the original already does
    not count.
    """
    problems_before = {key for key, _ in _type_problems(original)}
    for key, problem in _type_problems(rewritten):
        if key not in problems_before:
            yield Violation("types", key[0], f"{key[1]} {problem}")


def _type_problems(model: ir.Model) -> Iterator[Problem]:
    types = known_types(model)
    for scope, graph in graphs(model):
        if scope.startswith("function "):
            continue  # a function body has one set of types per call
        for node in graph:
            where = place(scope, node.name or node.op_type)
            for subject, problem in _node_problems(model, node, types):
                yield (where, subject), problem
            for value in node.outputs:
                yield from _recorded_problems(scope, value, types)
            for attribute, subgraph in named_subgraphs(node):
                inner = scope_of(scope, node, attribute)
                for value in subgraph.inputs:
                    yield from _recorded_problems(inner, value, types)
        for value in graph.outputs:
            yield from _recorded_problems(scope, value, types)


def _recorded_problems(scope: str, value: ir.Value, types: Types) -> Iterator[Problem]:
    recorded, inferred = elements.from_ir(value.type), types.get(value)
    if recorded is not None and inferred is not None and recorded != inferred:
        yield (scope, value.name or ""), f"records {recorded}, is {inferred}"


def _node_problems(model: ir.Model, node: ir.Node, types: Types) -> Iterator[tuple[str, str]]:
    if node.domain == "" and node.op_type in _CONTROL_FLOW:
        yield from _CONTROL_FLOW[node.op_type](node, types)
        return
    if node.op_identifier() in model.functions:
        return
    yield from _schema_problems(model, node, types)


def _schema_problems(model: ir.Model, node: ir.Node, types: Types) -> Iterator[tuple[str, str]]:
    ports = ports_at(node, model.graph.opset_imports)
    if ports.schema is None:
        return
    bound: dict[str, str] = {}
    actuals = (
        *zip(ports.inputs, node.inputs, strict=True),
        *zip(ports.outputs, node.outputs, strict=True),
    )
    for variable, value in actuals:
        type_ = None if value is None else types.get(value)
        if value is None or type_ is None:
            continue
        admitted = ports.schema.variables.get(schema_variable(variable))
        name = value.name or ""
        if is_fixed(variable) and type_ != variable:
            yield name, f"is {type_}, must be {variable}"
        # A sequence operator's S stands for the sequence and for its elements.
        is_element = has(node, Trait.SEQUENCE) and variable == "S" and type_[:4] != "seq("
        whole = f"seq({type_})" if is_element else type_
        if admitted is not None and whole not in admitted:
            yield name, f"is {type_}, which {node.op_type} does not admit for {variable}"
        if variable != "S" and bound.setdefault(variable, type_) != type_:
            yield name, f"is {type_}, but {variable} is {bound[variable]}"


def _pairs(
    left: Sequence[ir.Value | None], right: Sequence[ir.Value | None], types: Types, what: str
) -> Iterator[tuple[str, str]]:
    for a, b in zip(left, right, strict=False):
        pair = None if a is None else types.get(a), None if b is None else types.get(b)
        if a is not None and b is not None and None not in pair and pair[0] != pair[1]:
            yield a.name or "", f"({what}) is {pair[0]}, {b.name} is {pair[1]}"


def _if(node: ir.Node, types: Types) -> Iterator[tuple[str, str]]:
    for name in ("then_branch", "else_branch"):
        branch = node.attributes[name].as_graph()
        yield from _pairs(branch.outputs, node.outputs, types, name)


def _loop(node: ir.Node, types: Types) -> Iterator[tuple[str, str]]:
    body = node.attributes["body"].as_graph()
    carried = len(node.inputs) - 2
    starts, finals = body.inputs[2:], body.outputs[1:]
    yield from _pairs(node.inputs[2:], starts, types, "initial value")
    yield from _pairs(finals[:carried], starts, types, "carried value")
    yield from _pairs(finals, node.outputs, types, "output")


def _scan(node: ir.Node, types: Types) -> Iterator[tuple[str, str]]:
    body = node.attributes["body"].as_graph()
    scanned = node.attributes["num_scan_inputs"].as_int()
    states = len(body.inputs) - scanned
    inputs = node.inputs[-len(body.inputs) :]  # Scan-8 has sequence_lens in front
    yield from _pairs(inputs, body.inputs, types, "input")
    yield from _pairs(body.outputs[:states], body.inputs, types, "carried value")
    yield from _pairs(body.outputs, node.outputs, types, "output")


_CONTROL_FLOW = {"If": _if, "Loop": _loop, "Scan": _scan}
