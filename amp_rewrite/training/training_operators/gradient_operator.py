"""Gradient of ai.onnx.preview.training in operators of ai.onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.graph.names import place

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
    constant.
    """
    values = [v for v in node.inputs if v is not None]
    count = len(values) // 2
    inputs, places, y = values[:count], values[count:-1], values[-1]
    differentiated = len(node.attributes.get_strings("xs", []))
    _check_float(node, [*inputs[:differentiated], y])
    if inputs != places:
        raise TrainingInfoError(
            "a Gradient is taken at values other than those that xs and zs name",
            where=place(node),
            found=", ".join(str(v.name) for v in inputs),
            expected=", ".join(str(v.name) for v in places),
        )
    if y.graph is not None:
        b = b.child(y.graph)
    computed = [v for v in places if v.producer() is not None]
    cut = {v: ir.Value(name=v.name, type=v.type, shape=v.shape) for v in computed}
    _exchange(cut)
    wrt = [cut.get(v, v) for v in places[:differentiated]]
    derivatives = gradients(b, {cut.get(y, y): b.ones_like(cut.get(y, y))}, wrt, sparse=False)
    pairs = zip(derivatives, wrt, strict=True)
    results = [g if isinstance(g, ir.Value) else b.zeros_like(x) for g, x in pairs]
    back = {new: old for old, new in cut.items()}
    _exchange(back)
    return [back.get(v, v) for v in results]


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
