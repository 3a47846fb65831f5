"""Write a rewritten model from the messages that were read, without building it as objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import onnx

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import MAIN, FlatGraph
from amp_rewrite.graph.io.checker import refuse_faults
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
from amp_rewrite.graph.proto.messages import copy_text, props, text
from amp_rewrite.rewriting.apply.checked import Nodes, fault_of, serialized
from amp_rewrite.rewriting.apply.rewiring import Read
from amp_rewrite.rewriting.apply.rewritten_graph import RewrittenGraph, converted, without_data
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.plan.typed_attributes import OPSET_OF_CASTS


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
        nodes, rest = _main_graph(graph, placed)
        if not plan.is_empty:
            fault = fault_of(head, nodes, rest, placed[MAIN])
            unchanged = RewrittenGraph(flat, type_graph, CastPlan(plan.low), (), graph.convert)
            refuse_faults(fault, partial(_fault_of_source, flat, unchanged), output)
        return _parts(head, nodes.content, rest, placed[MAIN])

    replace_model(output, external, parts, Meter(sum(sizes), progress), sources_of(external))


def _fault_of_source(flat: FlatGraph, unchanged: RewrittenGraph) -> str | None:
    head, weights = header(flat, None, {}).SerializeToString(), unchanged.all_weights()
    return fault_of(head, *_main_graph(unchanged, weights), weights[MAIN])


def _main_graph(
    graph: RewrittenGraph, weights: Sequence[Sequence[Weight]]
) -> tuple[Nodes, onnx.GraphProto]:
    """Return the nodes of the main graph, serialized one by one, and what else is in it."""
    made = list[Read]()

    def messages() -> Iterator[onnx.NodeProto]:
        for message, outputs in graph.nodes(MAIN, weights):
            made.extend(outputs)
            yield message

    nodes = serialized(messages())
    return nodes, graph.without_nodes(MAIN, made)


def _placed(weight: Weight, places: Iterator[Place]) -> Weight:
    """Return a weight that is in the next place of the data file, or stays in its message."""
    if source_file(weight.stream) is None:
        return weight
    message = without_data(weight.message)
    refer(message, next(places))
    return Weight(message, weight.stream)


def _parts(head: bytes, nodes: bytes, rest: onnx.GraphProto, weights: Sequence[Weight]) -> Parts:
    external = [w for w in weights if source_file(w.stream) is not None]
    rest.initializer.extend(weight.message for weight in external)
    body = nodes + rest.SerializeToString(deterministic=True)
    return Parts(head, body, [w for w in weights if source_file(w.stream) is None])


def header(flat: FlatGraph, plan: CastPlan | None, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Return everything of the rewritten model except its functions and its main graph."""
    source, proto = flat.proto, onnx.ModelProto()
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        if source.HasField(field):
            value = getattr(source, field)
            setattr(proto, field, text(value) if isinstance(value, bytes) else value)
    copy_text(proto, source, "doc_string")
    proto.opset_import.extend(source.opset_import)
    if plan is not None and plan.casts and "" not in flat.opsets:
        proto.opset_import.add(domain="", version=OPSET_OF_CASTS)
    proto.metadata_props.extend(source.metadata_props)
    if metadata:
        del proto.metadata_props[:]
        for key, entry in (props(source.metadata_props) | dict(metadata)).items():
            proto.metadata_props.add(key=key, value=entry)
    proto.training_info.extend(source.training_info)
    proto.configuration.extend(source.configuration)
    return proto
