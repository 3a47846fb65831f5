"""Gradient of ai.onnx.preview.training in operators of ai.onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traverse import inputs_of, subgraphs
from amp_rewrite.training.graph.weights import nodes_before

Scope = Sequence[ir.Graph]
"""A graph and those around it, the innermost one first."""


def resolve(node: ir.Node, scope: Scope) -> None:
    """Append the values that xs, zs and y name to the inputs of a Gradient node, in place.

    Then values can be renamed and inlined, and sorting puts the node after y.

    Raises:
        TrainingInfoError: Names or inputs do not fit.
    """
    xs, zs = node.attributes.get_strings("xs", []), node.attributes.get_strings("zs", [])
    y = node.attributes.get_string("y")
    if not xs or y is None:
        raise TrainingInfoError("attributes 'xs' and 'y' are needed", where=place(node))
    count = len(node.inputs)
    if None in node.inputs or count != len(xs) + len(zs) or len(node.outputs) > len(xs):
        raise TrainingInfoError(
            "inputs and outputs do not match the attributes xs and zs",
            where=place(node),
            found=f"{count} inputs, {len(node.outputs)} outputs",
            expected=f"{len(xs) + len(zs)} inputs and up to {len(xs)} outputs",
        )
    values = [_find(node, name, scope) for name in (*xs, *zs, y)]
    node.resize_inputs(count + len(values))
    for index, value in enumerate(values, count):
        node.replace_input_with(index, value)


def lower_gradient(node: ir.Node, b: Builder) -> list[ir.Value]:
    """Return the derivatives of the sum of y with respect to each of xs, for a resolved node.

    The tensors of xs and zs are independent, even if one is computed from another; those of zs are
    constant. If an input of the node is not the value of that name, the nodes up to y are repeated
    on the inputs.
    """
    values = [v for v in node.inputs if v is not None]
    count = len(values) // 2
    inputs, places, y = values[:count], values[count:-1], values[-1]
    differentiated = len(node.attributes.get_strings("xs", []))
    _check_float(node, [*inputs[:differentiated], y])
    if inputs != places:
        inputs, y = _repeat(b, y, dict(zip(places, inputs, strict=True)))
        return _differentiate(b, y, inputs[:differentiated])
    if y.graph is not None:
        b = b.child(y.graph)
    computed = [v for v in places if v.producer() is not None]
    cut = {v: ir.Value(name=v.name, type=v.type, shape=v.shape) for v in computed}
    _exchange(cut)
    wrt = [cut.get(v, v) for v in places[:differentiated]]
    results = _differentiate(b, cut.get(y, y), wrt)
    back = {new: old for old, new in cut.items()}
    _exchange(back)
    return [back.get(v, v) for v in results]


def _differentiate(b: Builder, y: ir.Value, wrt: Sequence[ir.Value]) -> list[ir.Value]:
    derivatives = gradients(b, {y: b.ones_like(y)}, wrt, sparse=False)
    pairs = zip(derivatives, wrt, strict=True)
    return [g if isinstance(g, ir.Value) else b.zeros_like(x) for g, x in pairs]


def _exchange(values: Mapping[ir.Value, ir.Value]) -> None:
    """Let nodes read the values of the mapping instead of its keys."""
    for old, new in values.items():
        for node, index in list(old.uses()):
            node.replace_input_with(index, new)


def _find(node: ir.Node, name: str, scope: Scope) -> ir.Value:
    for graph in scope:
        for value in _values(graph):
            if value.name == name:
                return value
    raise TrainingInfoError(
        f"no value is called {name!r}", where=place(node), expected="the name of a value in scope"
    )


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _check_float(node: ir.Node, values: Sequence[ir.Value]) -> None:
    for value in values:
        if value.dtype is not None and not value.dtype.is_floating_point():
            raise TrainingInfoError(
                f"{value.name!r} cannot be differentiated",
                where=place(node),
                found=value.dtype.name.lower(),
                expected="a floating-point tensor",
            )


def _repeat(
    b: Builder, y: ir.Value, replaced: dict[ir.Value, ir.Value]
) -> tuple[list[ir.Value], ir.Value]:
    """Compute y again with values replaced; return the replacements and y.

    Each replacement passes through an Identity, so that none depends on another.
    """
    copied = {old: b.op("Identity", new) for old, new in replaced.items()}
    inputs = list(copied.values())
    for node in nodes_before(y.graph, y) if y.graph is not None else ():
        if any(v in copied for v in inputs_of(node)):
            copies = _copy(b, node, copied)
            for old, new in zip(node.outputs, copies, strict=True):
                copied.setdefault(old, new)
    return inputs, copied.get(y, y)


def _copy(b: Builder, node: ir.Node, replaced: Mapping[ir.Value, ir.Value]) -> Sequence[ir.Value]:
    inputs = [None if v is None else replaced.get(v, v) for v in node.inputs]
    attributes: dict[str, Any] = {k: _attribute(v, replaced) for k, v in node.attributes.items()}
    count = len(node.outputs)
    copies = b.op(node.op_type, *inputs, outputs=count, domain=node.domain, **attributes)
    copies = (copies,) if count == 1 else copies
    producer = copies[0].producer()
    if producer is not None:
        producer.overload = node.overload
    for old, new in zip(node.outputs, copies, strict=True):
        new.type = new.type or old.type
    return copies


def _attribute(attribute: ir.Attr, replaced: Mapping[ir.Value, ir.Value]) -> ir.Attr:
    """Return an attribute whose graph, if it is one, reads the given values."""
    if attribute.type is not ir.AttributeType.GRAPH:
        return attribute
    graph = attribute.as_graph().clone(allow_outer_scope_values=True)
    _replace_captured(graph, replaced)
    return ir.AttrGraph(attribute.name, graph)


def _replace_captured(graph: ir.Graph, replaced: Mapping[ir.Value, ir.Value]) -> None:
    for node in graph:
        for index, value in enumerate(node.inputs):
            if value is not None and value in replaced:
                node.replace_input_with(index, replaced[value])
        for inner in subgraphs(node):
            _replace_captured(inner, replaced)
    for index, value in enumerate(graph.outputs):
        if value in replaced:
            graph.outputs[index] = replaced[value]
