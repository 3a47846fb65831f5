"""Write a rewritten model from the messages that were read, without building it as objects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import onnx
from google.protobuf.message import EncodeError

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import MAIN
from amp_rewrite.graph.io.model_files import (
    INLINE_LIMIT,
    Inline,
    Meter,
    Parts,
    Path,
    Place,
    Progress,
    replace_model,
    source_file,
)
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.messages import props, text, varint
from amp_rewrite.graph.step_metadata import with_precision
from amp_rewrite.rewriting.casts import CastPlan
from amp_rewrite.rewriting.rewiring import Read
from amp_rewrite.rewriting.rewritten_graph import RewrittenGraph
from amp_rewrite.rewriting.rewritten_weights import Weight
from amp_rewrite.rewriting.typed_attributes import OPSET_OF_CASTS

_NODE = varint(onnx.GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | 2)


def can_save(flat: FlatProto) -> bool:
    """Tell whether `save_rewritten` can write a model.

    It cannot where the model has functions or a tensor in an attribute has its data in a file, or
    where weights have to move to a data file because there are too many for the model file.
    """
    inline = (t.nbytes for t in flat.tensors.values() if t.location is None)
    is_plain = not flat.functions and not flat.external_attributes
    return is_plain and sum(inline) <= INLINE_LIMIT


def save_rewritten(
    flat: FlatProto,
    type_graph: TypeGraph,
    plan: CastPlan,
    removed: Iterable[int],
    path: Path,
    progress: Progress | None = None,
) -> None:
    """Write a model as a plan changes it; the file is the one that `save` writes.

    Args:
        flat: The model as it was read, one that `can_save` tells to be so.
        type_graph: Its dataflow.
        plan: What changes.
        removed: The model's own Casts that become no-ops.
        path: The model file. An existing one is replaced in one step.
        progress: Called every few MiB.

    Raises:
        SaveError: It cannot be written; no new file is left behind.
        LoadError: External data of the model have become unreadable.
    """
    output = os.path.abspath(path_text(path, SaveError))
    graph = RewrittenGraph(flat, type_graph, plan, removed)
    weights = [list(graph.weights(number)) for number in range(len(flat.bodies))]
    streams = [w.stream for body in weights for w in body if w.stream is not None]
    external = [stream for stream in streams if source_file(stream) is not None]
    sources = {file for file in map(source_file, external) if file is not None}
    sizes = [w.message.ByteSize() if w.stream is None else w.stream.nbytes for w in weights[MAIN]]

    def parts(places: Sequence[Place]) -> Parts:
        left = iter(places)
        for weight in (w for body in weights for w in body):
            if source_file(weight.stream) is not None:
                _refer(weight.message, next(left))
        return _parts(flat, graph, plan, weights)

    try:
        replace_model(output, external, parts, Meter(sum(sizes), progress), sources)
    except (OSError, ValueError, EncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise SaveError(
            "the model cannot be written", where=output, found=reason or error
        ) from error


def _refer(message: onnx.TensorProto, place: Place) -> None:
    """Let a tensor's message name the place of its data."""
    message.data_location = onnx.TensorProto.EXTERNAL
    for key, entry in place._asdict().items():
        message.external_data.add(key=key, value=str(entry))


def _parts(
    flat: FlatProto, graph: RewrittenGraph, plan: CastPlan, weights: Sequence[Sequence[Weight]]
) -> Parts:
    body, made = bytearray(), list[Read]()
    for message, outputs in graph.nodes(MAIN, weights):
        node = message.SerializeToString(deterministic=True)
        body += _NODE + varint(len(node)) + node
        made += outputs
    rest = graph.without_nodes(MAIN, made)
    external = [w for w in weights[MAIN] if source_file(w.stream) is not None]
    rest.initializer.extend(weight.message for weight in external)
    body += rest.SerializeToString(deterministic=True)
    kept = [_inline(weight) for weight in weights[MAIN] if source_file(weight.stream) is None]
    return Parts(_header(flat, plan).SerializeToString(deterministic=True), bytes(body), kept)


def _inline(weight: Weight) -> Inline:
    return Inline(weight.message.SerializeToString(deterministic=True), weight.stream)


def _header(flat: FlatProto, plan: CastPlan) -> onnx.ModelProto:
    """Return everything of the model except its main graph."""
    source, header = flat.proto, onnx.ModelProto()
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        if source.HasField(field):
            value = getattr(source, field)
            setattr(header, field, text(value) if isinstance(value, bytes) else value)
    if source.HasField("doc_string"):
        header.doc_string = text(source.doc_string)
    header.opset_import.extend(source.opset_import)
    if plan.casts and "" not in flat.opsets:
        header.opset_import.add(domain="", version=OPSET_OF_CASTS)
    header.metadata_props.extend(source.metadata_props)
    changed = with_precision(flat, plan.low.name) if plan.computes_low else {}
    if changed:
        del header.metadata_props[:]
        for key, entry in (props(source.metadata_props) | changed).items():
            header.metadata_props.add(key=key, value=entry)
    header.training_info.extend(source.training_info)
    header.configuration.extend(source.configuration)
    return header
