"""Write a rewritten model from the messages that were read, without building it as objects."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import onnx
import onnx.helper

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.graph.io.checker import checker_fault, refuse_faults
from amp_rewrite.graph.io.model_files import (
    INLINE_LIMIT,
    Meter,
    Parts,
    Path,
    Place,
    Progress,
    Weight,
    refer,
    replace_model,
    source_file,
    sources_of,
)
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.proto.messages import varint
from amp_rewrite.rewriting.apply.rewiring import Read
from amp_rewrite.rewriting.apply.rewritten_graph import (
    RewrittenGraph,
    converted,
    header,
    with_data,
    without_data,
)
from amp_rewrite.rewriting.plan.casts import CastPlan

_GRAPH = varint(onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | 2)
_NODE = varint(onnx.GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | 2)

_READ = 1 << 8
"""Elements of the largest constants that the checker sees: shapes, axes and scales."""

MANY_NODES = 2_000
"""Of more nodes types are not inferred: that takes more than 5 % of the time of `convert`."""


def can_save(flat: FlatGraph) -> bool:
    """Tell whether `save_rewritten` can write a model.

    It cannot where the model has functions or was in memory, where a tensor in an attribute has its
    data in a file, or where weights have to move to a data file because there are too many for the
    model file.
    """
    inline = (t.nbytes for t in flat.tensors.values() if t.location is None)
    is_plain = not (flat.attached or flat.external_attributes or flat.files.held)
    return is_plain and sum(inline) <= INLINE_LIMIT


def save_rewritten(
    flat: FlatGraph,
    type_graph: TypeGraph,
    plan: CastPlan,
    removed: Iterable[int],
    metadata: Mapping[str, str],
    path: Path,
    progress: Progress | None = None,
) -> None:
    """Write a model as a plan changes it; the file is the one that `save` writes.

    `flat` is one that `can_save` tells to be so; `removed` are the model's own Casts that become
    no-ops, and `metadata` are added or replaced. An existing file is replaced in one step.
    """
    output = os.path.abspath(path_text(path, SaveError))
    graph = RewrittenGraph(flat, type_graph, plan, removed, lambda w: Weight(*converted(flat, w)))
    weights = graph.all_weights()
    streams = [w.stream for body in weights for w in body if w.stream is not None]
    external = [stream for stream in streams if source_file(stream) is not None]
    sizes = [w.message.ByteSize() if w.stream is None else w.stream.nbytes for w in weights[MAIN]]

    def parts(places: Sequence[Place]) -> Parts:
        left = iter(places)
        placed = [[_placed(w, left) for w in body] for body in weights]
        head = header(flat, plan, metadata).SerializeToString(deterministic=True)
        main = _MainGraph.of(graph, placed)
        if not plan.is_empty:
            fault = main.fault(head, placed[MAIN])
            unchanged = RewrittenGraph(flat, type_graph, CastPlan(plan.low), (), graph.convert)
            refuse_faults(fault, partial(_fault_of_source, flat, unchanged), output)
        inline = [w for w in placed[MAIN] if source_file(w.stream) is None]
        elsewhere = (w.message for w in placed[MAIN] if source_file(w.stream) is not None)
        main.rest.initializer.extend(elsewhere)
        body = main.nodes + main.rest.SerializeToString(deterministic=True)
        return Parts(head, body, inline)

    replace_model(output, external, parts, Meter(sum(sizes), progress), sources_of(external))


def _fault_of_source(flat: FlatGraph, unchanged: RewrittenGraph) -> str | None:
    head, weights = header(flat, None, {}).SerializeToString(), unchanged.all_weights()
    return _MainGraph.of(unchanged, weights).fault(head, weights[MAIN])


def _placed(weight: Weight, places: Iterator[Place]) -> Weight:
    """Return a weight that is in the next place of the data file, or stays in its message."""
    if source_file(weight.stream) is None:
        return weight
    message = without_data(weight.message)
    refer(message, next(places))
    return Weight(message, weight.stream)


class _MainGraph(NamedTuple):
    """A main graph without its dense initializers; the nodes are serialized."""

    nodes: bytes
    n_nodes: int
    rest: onnx.GraphProto

    @classmethod
    def of(cls, graph: RewrittenGraph, weights: Sequence[Sequence[Weight]]) -> _MainGraph:
        """Write nodes one by one, so that there is one message of them at a time."""
        content, made, sizes = list[bytes](), list[Read](), dict[int, bytes]()
        for message, outputs in graph.nodes(MAIN, weights):
            node = message.SerializeToString()
            size = len(node)
            if size not in sizes:
                sizes[size] = _NODE + varint(size)
            content += (sizes[size], node)
            made += outputs
        return cls(b"".join(content), len(content) // 2, graph.without_nodes(MAIN, made))

    def fault(self, head: bytes, weights: Iterable[Weight]) -> str | None:
        """Return what onnx's checker says against the model; large weights are inputs for it."""
        more, fed = onnx.GraphProto(), {info.name for info in self.rest.input}
        for weight in weights:
            message = weight.message
            is_elsewhere = message.data_location == onnx.TensorProto.EXTERNAL
            if math.prod(message.dims) <= _READ and not (weight.stream is None and is_elsewhere):
                held = message if weight.stream is None else without_data(message)
                more.initializer.append(with_data(Weight(held, weight.stream)))
            elif message.name not in fed:
                dims, kind = list(message.dims), message.data_type
                more.input.append(onnx.helper.make_tensor_value_info(message.name, kind, dims))
        graph = self.nodes + self.rest.SerializeToString() + more.SerializeToString()
        content = head + _GRAPH + varint(len(graph)) + graph
        return checker_fault(content, types=self.n_nodes <= MANY_NODES)
