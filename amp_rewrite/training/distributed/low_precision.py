"""Let gradients that were computed in a low type travel in it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.graph.traverse import inputs_of
from amp_rewrite.numerics.emulate.type_attributes import LOW_MEMBERS
from amp_rewrite.training.graph.replicas import SUM, is_collective, replica_nodes

_LINEAR = ("Mul", "Cast", "Identity")  # operators: what unscaling a gradient is made of


def lower_sums(model: ir.Model, data: Iterable[str]) -> None:
    """Sum low-precision gradients before they are cast to float32 and unscaled, not after.

    `CrossReplicaSum(s * Cast(g))` becomes `s * Cast(CrossReplicaSum(g))`, where g is float16 or
    bfloat16 and s a scalar that is the same on all shards, or absent. Other sums stay.

    Args:
        model: A step; changed in place.
        data: The names of its inputs that are no states.
    """
    own = _own_values(model, data)
    for node in list(replica_nodes(model)):
        if node.op_type != SUM:
            continue
        path = _path_to_low(node, own)
        if path:
            _move(model.graph, node, path)


def _path_to_low(node: ir.Node, own: set[ir.Value]) -> list[ir.Node]:
    """Return the nodes between a low-precision value and a sum, the nearest to the sum first."""
    path: list[ir.Node] = []
    value = node.inputs[0]
    while value is not None and value.dtype not in LOW_MEMBERS:
        producer = value.producer()
        if producer is None or producer.op_type not in _LINEAR or len(value.uses()) > 1:
            return []
        if producer.op_type == "Mul" and not _is_common_scalar(producer.inputs[1], own):
            return []
        path.append(producer)
        value = producer.inputs[0]
    return path if value is not None else []


def _is_common_scalar(value: ir.Value | None, own: set[ir.Value]) -> bool:
    if value is None or value.shape is None or len(value.shape) > 0:
        return False
    return value not in own


def _own_values(model: ir.Model, data: Iterable[str]) -> set[ir.Value]:
    """Return what depends on a shard's data: its gradients do, a loss scale does not."""
    names = set(data)
    own = {value for value in model.graph.inputs if value.name in names}
    for node in model.graph:
        if not is_collective(node) and any(value in own for value in inputs_of(node)):
            own.update(node.outputs)
    return own


def _move(graph: ir.Graph, node: ir.Node, path: list[ir.Node]) -> None:
    """Put a sum in front of the nodes that it stands behind."""
    first = path[-1]
    low, summed = first.inputs[0], node.outputs[0]
    source = node.inputs[0]
    assert low is not None, "the path begins at a value"
    assert source is not None, "a sum has one input"
    moved = ir.Node(
        node.domain,
        node.op_type,
        [low],
        node.attributes.values(),
        name=node.name,
        num_outputs=1,
        metadata_props=dict(node.metadata_props),
    )
    new = moved.outputs[0]
    new.name, new.type, new.shape = f"{summed.name}:low", low.type, low.shape
    graph.insert_before(first, moved)
    first.replace_input_with(0, new)
    # Whoever read the sum reads what the path makes of it; the name stays with the result.
    ir.convenience.replace_all_uses_with(summed, source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    summed.name, source.name = None, summed.name
