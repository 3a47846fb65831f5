"""The gradient of If."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.grad.repeated import repeated
from amp_rewrite.graph.traverse import remove_unused_nodes


def if_gradients(
    b: Builder, node: ir.Node, received: Sequence[ir.Value | None], wanted: Sequence[ir.Value]
) -> list[tuple[ir.Value, ir.Value]]:
    """Return the gradients of the outer values that the branches of an If use.

    With y = then(x) if c else else(x): dx = then'(x)^T dy if c else else'(x)^T dy, an If on the
    same condition. Its branches compute the forward branch again, since values inside a branch
    cannot be read from outside, and then differentiate it; what a branch does not use gets zeros.

    Args:
        b: Builder of the graph with the node.
        node: The If.
        received: The gradient of each output.
        wanted: The outer values to differentiate with respect to.

    Raises:
        GradientError: A branch has an operator without a rule, or draws random numbers.
    """
    if not wanted:
        return []
    then = _branch(b, node, "then_branch", received, wanted)
    other = _branch(b, node, "else_branch", received, wanted)
    found = b.op("If", node.inputs[0], outputs=len(wanted), then_branch=then, else_branch=other)
    outputs = found if isinstance(found, tuple) else (found,)
    for value, gradient in zip(wanted, outputs, strict=True):
        gradient.type = ir.TensorType(b.type_of(value))
        b.shaped_like(gradient, value)
    return list(zip(wanted, outputs, strict=True))


def _branch(
    b: Builder,
    node: ir.Node,
    name: str,
    received: Sequence[ir.Value | None],
    wanted: Sequence[ir.Value],
) -> ir.Graph:
    # Here, since the walk asks this module for the gradient of an If.
    from amp_rewrite.grad.walk import gradients

    branch = node.attributes[name].as_graph()
    body = repeated(b, branch)
    inner = b.child(body)
    seeds: dict[ir.Value, ir.Value] = {}
    for value, gradient in zip(body.outputs, received, strict=True):
        if gradient is not None:
            seeds[value] = inner.add(seeds[value], gradient) if value in seeds else gradient
    outputs: list[ir.Value] = []
    found = gradients(inner, seeds, wanted, sparse=False)
    for value, gradient in zip(wanted, found, strict=True):
        if not isinstance(gradient, ir.Value):
            gradient = inner.zeros_like(value)
        # An output of a branch is computed in it, and is one output only.
        outputs.append(inner.op("Identity", gradient))
    body.outputs.clear()
    body.outputs.extend(outputs)
    body.name = inner.free_name(f"{node.name or 'if'}/{name}")
    remove_unused_nodes(body)
    return body
