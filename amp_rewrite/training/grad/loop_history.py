"""What an input of a Loop's body was in each turn: a further output of the Loop."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder

_FIRST_OUTPUT = 1  # of a body: before it is whether another turn follows


def history(b: Builder, node: ir.Node, index: int, like: ir.Value) -> ir.Value:
    """Return the values that an input of a Loop's body had, one turn behind the other.

    The Loop gets an output for it unless it has one; `like` has the shape of each.

    Raises:
        GradientError: It is not a tensor.
    """
    body = node.attributes["body"].as_graph()
    value = body.inputs[index]
    if not isinstance(like.type, ir.TensorType):
        raise GradientError(
            "a state that a loop carries is not a tensor, and a gradient depends on it",
            where=place(node),
            found=f"{value.name!r} of type {like.type}",
            remedy="carry tensors: let each turn give its part out as an output of the loop",
        )
    return _known(node, body, value) or _added(b, node, body, value, like)


def _known(node: ir.Node, body: ir.Graph, value: ir.Value) -> ir.Value | None:
    states = len(body.inputs) - 2
    outputs = list(zip(node.outputs, body.outputs[_FIRST_OUTPUT:], strict=False))
    return next((o for o, inside in outputs[states:] if o.name and _copies(inside, value)), None)


def _copies(value: ir.Value, source: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.op_type == "Identity" and node.inputs[0] is source


def _added(b: Builder, node: ir.Node, body: ir.Graph, value: ir.Value, like: ir.Value) -> ir.Value:
    inside = b.child(body).op("Identity", value)
    inside.producer().metadata_props.clear()  # it belongs to the forward model
    inside.type = like.type
    inside = b.shaped_like(inside, like)
    body.outputs.append(inside)
    node.resize_outputs(len(body.outputs) - _FIRST_OUTPUT)
    output = node.outputs[-1]
    output.name = b.free_name(f"{node.name or node.op_type}/{value.name}")
    output.type = like.type
    lengths = b.symbolic_dims(like)
    output.shape = None if lengths is None else ir.Shape([None, *lengths])
    return output


def drop_unused_history(graph: ir.Graph) -> None:
    """Let the Loops of a graph give out nothing at their end that nobody reads, in place."""
    for node in graph:
        if node.op_type == "Loop" and not node.domain:
            _drop(node)


def _drop(node: ir.Node) -> None:
    body, count = node.attributes["body"].as_graph(), len(node.outputs)
    states = len(body.inputs) - 2
    while count > max(states, 1) and _is_unread(node.outputs[count - 1]):
        count -= 1
    if count < len(node.outputs):
        node.resize_outputs(count)
        kept = body.outputs[: count + _FIRST_OUTPUT]
        body.outputs.clear()
        body.outputs.extend(kept)
        remove_unused_nodes(body)


def _is_unread(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output()
