"""What onnx's checker gets of a model that is about to be written: all but its large weights.

Those are graph inputs for it, so that nothing of them is read. Of many nodes, one of each kind is
given to its inference, and all of them to the rest of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
from onnx import TensorProto

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.invariants.checker import checker_fault, type_fault
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.messages import varint
from amp_rewrite.rewriting.apply.rewritten_graph import RewrittenGraph
from amp_rewrite.rewriting.apply.rewritten_weights import Weight, without_data
from amp_rewrite.rewriting.plan.casts import CastPlan, PlannedWeight

_GRAPH = varint(onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | 2)
_NODE = varint(onnx.GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | 2)

_READ = 1 << 8
"""Elements of the largest constants that the checker sees: shapes, axes and scales."""

MANY_NODES = 2_000
"""Of more nodes, inference of types takes more than 5 % of the time of `convert`."""

_NOTHING = CastPlan(FLOAT32, (), (), (), {}, (), (), {})


def fault_of(
    header: bytes,
    nodes: bytes,
    rest: onnx.GraphProto,
    weights: Iterable[Weight],
    samples: onnx.GraphProto | None = None,
) -> str | None:
    """Return what the checker says against a model; None for nothing.

    Args:
        header: The serialized model without its main graph.
        nodes: The serialized nodes of that.
        rest: All else of it but its dense initializers.
        weights: Those.
        samples: The nodes that inference of types is to be tried on, if not all.
    """
    more, fed = onnx.GraphProto(), {info.name for info in rest.input}
    for weight in weights:
        message = weight.message
        if math.prod(message.dims) > _READ or (weight.stream is None and _is_elsewhere(message)):
            if message.name not in fed:
                dims, kind = list(message.dims), message.data_type
                info = onnx.helper.make_tensor_value_info(message.name, kind, dims)
                more.input.append(info)
        elif weight.stream is None:
            more.initializer.append(message)
        else:
            held = without_data(message)
            held.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
            more.initializer.append(held)
    graph = nodes + rest.SerializeToString() + more.SerializeToString()
    fault = checker_fault(_model(header, graph), types=samples is None)
    if fault is None and samples is not None:
        return type_fault(_model(header, samples.SerializeToString()))
    return fault


def _model(header: bytes, graph: bytes) -> bytes:
    return header + _GRAPH + varint(len(graph)) + graph


def fault_of_source(flat: FlatProto, type_graph: TypeGraph, header: bytes) -> str | None:
    """Return what the checker says against a model as it was read; None for nothing."""
    graph = RewrittenGraph(flat, type_graph, _NOTHING, (), _unplanned)
    weights = [list(graph.weights(number)) for number in range(len(flat.bodies))]
    made = list(graph.nodes(MAIN, weights))
    rest = graph.without_nodes(MAIN, [read for _, outputs in made for read in outputs])
    nodes, _ = serialized(node for node, _ in made)
    return fault_of(header, nodes, rest, weights[MAIN])


def serialized(nodes: Iterable[onnx.NodeProto]) -> tuple[bytes, int]:
    """Return the nodes of a graph as its message holds them, and how many they are."""
    found, count = bytearray(), 0
    for message in nodes:
        node = message.SerializeToString(deterministic=True)
        found += _NODE + varint(len(node)) + node
        count += 1
    return bytes(found), count


def _unplanned(weight: PlannedWeight) -> Weight:
    raise ValueError(f"nothing is planned, but {weight.name} is")


def _is_elsewhere(message: TensorProto) -> bool:
    return message.data_location == TensorProto.EXTERNAL
