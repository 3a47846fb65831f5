"""Gradient of ai.onnx.preview.training in operators of ai.onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.captures import captured, subgraphs
from amp_rewrite.grad.weights import nodes_before
from amp_rewrite.training_info.errors import TrainingInfoError, place

Scope = Sequence[ir.Graph]
"""A graph and those around it, the innermost one first."""


def lower_gradient(node: ir.Node, b: Builder, scope: Scope) -> list[ir.Value]:
    """Return the derivatives of y with respect to each of xs; zeros where y does not depend on it.

    The names in xs, zs and y denote values of the graph. The tensors in zs are held constant. Where
    an input of the node is not the value that its name denotes, or where one of them depends on
    another, the nodes in between are repeated on the inputs. The seed is a tensor of ones:
    the derivative of the sum of y's elements.

    Args:
        node: The Gradient node.
        b: A builder for any graph of the model.
        scope: The graphs in which the node finds names.

    Raises:
        TrainingInfoError: A name denotes no value, or is no floating-point tensor.
        GradientError: An operator in between has no gradient.
    """
    xs = node.attributes.get_strings("xs", [])
    inputs = [v for v in node.inputs if v is not None]
    known = [find(node, name, scope) for name in (*xs, *node.attributes.get_strings("zs", []))]
    if not xs or len(inputs) != len(known) or len(node.outputs) > len(xs):
        raise TrainingInfoError(
            "inputs and outputs do not match the attributes xs and zs",
            where=place(node),
            found=f"{len(inputs)} inputs, {len(node.outputs)} outputs",
            expected=f"{len(known)} inputs and up to {len(xs)} outputs",
        )
    y = find(node, target(node), scope)
    _check_float(node, [*inputs[: len(xs)], y])
    if inputs == known and not _depend(known):
        b = b.child(y.graph or scope[0])
    else:
        b = b.child(scope[0])
        y = _repeat(b, y, dict(zip(known, inputs, strict=True)))
        inputs = [b.op("Identity", v) if v is y else v for v in inputs]
    wrt = inputs[: len(xs)]
    found = gradients(b, {y: b.ones_like(y)}, wrt, sparse=False)
    return [
        g if isinstance(g, ir.Value) else b.zeros_like(x) for g, x in zip(found, wrt, strict=True)
    ]


def target(node: ir.Node) -> str:
    """Return the name of what a Gradient node differentiates.

    Raises:
        TrainingInfoError: The attribute is missing.
    """
    attribute = node.attributes.get("y")
    if attribute is None:
        raise TrainingInfoError("attribute 'y' is missing", where=place(node))
    return attribute.as_string()


def find(node: ir.Node, name: str, scope: Scope) -> ir.Value:
    """Return the value that a name denotes.

    Raises:
        TrainingInfoError: There is none.
    """
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


def _depend(values: Sequence[ir.Value]) -> bool:
    """Return whether one of the values is computed from another."""
    for value in values:
        if value.producer() is None or value.graph is None:
            continue
        for node in nodes_before(value.graph, value):
            if any(v in values for v in (*node.inputs, *captured(node))):
                return True
    return False


def _repeat(b: Builder, y: ir.Value, given: dict[ir.Value, ir.Value]) -> ir.Value:
    """Compute y again from other values: what depends on a key of `given` reads its value instead.

    Each given value passes through an Identity of its own, so that none depends on another.
    """
    for old, new in list(given.items()):
        given[old] = b.op("Identity", new)
    if y in given:
        return given[y]
    for node in nodes_before(y.graph, y) if y.graph is not None else ():
        if any(v in given for v in (*node.inputs, *captured(node))):
            copies = _copy(b, node, given)
            given.update(
                {v: c for v, c in zip(node.outputs, copies, strict=True) if v not in given}
            )
    return given.get(y, y)


def _copy(b: Builder, node: ir.Node, given: Mapping[ir.Value, ir.Value]) -> Sequence[ir.Value]:
    inputs = [None if v is None else given.get(v, v) for v in node.inputs]
    attributes: dict[str, Any] = {k: _attribute(v, given) for k, v in node.attributes.items()}
    count = len(node.outputs)
    copies = b.op(node.op_type, *inputs, outputs=count, domain=node.domain, **attributes)
    copies = (copies,) if count == 1 else copies
    producer = copies[0].producer()
    if producer is not None:
        producer.overload = node.overload
    for old, new in zip(node.outputs, copies, strict=True):
        new.type = new.type or old.type
    return copies


def _attribute(attribute: ir.Attr, given: Mapping[ir.Value, ir.Value]) -> ir.Attr:
    """Return an attribute whose graph, if it is one, reads the given values."""
    if attribute.type is not ir.AttributeType.GRAPH or attribute.is_ref():
        return attribute
    graph = attribute.as_graph().clone(allow_outer_scope_values=True)
    _replace_captured(graph, given)
    return ir.AttrGraph(attribute.name, graph)


def _replace_captured(graph: ir.Graph, given: Mapping[ir.Value, ir.Value]) -> None:
    for node in graph:
        for index, value in enumerate(node.inputs):
            if value is not None and value in given:
                node.replace_input_with(index, given[value])
        for inner in subgraphs(node):
            _replace_captured(inner, given)
    for index, value in enumerate(graph.outputs):
        if value in given:
            graph.outputs[index] = given[value]
