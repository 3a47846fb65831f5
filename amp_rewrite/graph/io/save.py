"""Write an onnx_ir model: all of it or nothing, one tensor at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx
import onnx_ir as ir

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.load import HasModel, load, unwrapped
from amp_rewrite.graph.io.model_files import (
    INLINE_LIMIT,
    Meter,
    Parts,
    Path,
    Place,
    Progress,
    Weight,
    replace_model,
)
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.graph.tensors import all_tensors, source_file, stored

_WORTH_MOVING = 1 << 10


def to_proto(model: ir.Model | HasModel) -> onnx.ModelProto:
    """Return the model as a ModelProto; external tensors stay references to their files.

    Args:
        model: The model, or what `rewrite` or `convert` returned.

    Raises:
        SaveError: It is not a model, or the weights held in memory are too large for a protobuf
            message.

    Examples:
        >>> proto = amp.to_proto(amp.load("model.onnx"))
        >>> [tensor.name for tensor in proto.graph.initializer]
        ['w1', 'w2']
    """
    model = cast("ir.Model", unwrapped(model))
    _check_model(model)
    inline = sum(t.nbytes for t in all_tensors(model) if not isinstance(t, ir.ExternalTensor))
    if inline > INLINE_LIMIT:
        raise SaveError(
            "the model is too large for one protobuf message",
            found=f"{inline} bytes of weights",
            expected=f"at most {INLINE_LIMIT}",
            remedy="save it to a file instead",
        )
    with paused_gc():
        return ModelWriter(model).message()


def save(
    model: ir.Model | onnx.ModelProto | HasModel, path: Path, *, progress: Progress | None = None
) -> None:
    """Write the model to `path`; external tensors go to one data file next to it.

    Args:
        model: The model, or what `rewrite` or `convert` returned; it is not
            changed. Weights that it reads from files are streamed.
        path: The model file. An existing one is replaced in one step.
        progress: Called every few MiB.

    Raises:
        SaveError: It cannot be written; no new file is left behind.
        LoadError: External data of the model have become unreadable.

    Examples:
        >>> result = amp.rewrite("model.onnx")
        >>> amp.save(result, "low.onnx")
    """
    inner, given = unwrapped(model), cast("Any", model)
    if inner is not model and hasattr(model, "save"):  # a conversion writes only what holds
        given.save(path, progress=progress)
        return
    loaded: ir.Model = load(inner) if isinstance(inner, onnx.ModelProto) else inner
    output = os.path.abspath(path_text(path, SaveError))
    _check_model(loaded)
    tensors = {id(tensor): tensor for tensor in all_tensors(loaded)}
    sources = {file for file in map(source_file, tensors.values()) if file is not None}
    external = _choose(list(tensors.values()))
    meter = Meter(sum(tensor.nbytes for tensor in tensors.values()), progress)

    def parts(places: Sequence[Place]) -> Parts:
        return _parts(loaded, dict(zip(map(id, external), places, strict=True)))

    with paused_gc():
        replace_model(output, [stored(tensor) for tensor in external], parts, meter, sources)


def _check_model(model: object) -> None:
    if not isinstance(model, ir.Model):
        raise SaveError(
            "not a model",
            found=f"an object of type {type(model).__name__}",
            remedy="pass what amp_rewrite.load or rewrite returned",
        )


def _choose(tensors: list[ir.TensorProtocol]) -> list[ir.TensorProtocol]:
    """Return the tensors that go to the data file, each once."""
    unique = {id(tensor): tensor for tensor in tensors if tensor.dtype is not ir.DataType.STRING}
    inline = sum(t.nbytes for t in unique.values() if source_file(t) is None)
    move_all = inline > INLINE_LIMIT
    return [
        tensor
        for tensor in unique.values()
        if source_file(tensor) is not None or (move_all and tensor.nbytes >= _WORTH_MOVING)
    ]


def _parts(model: ir.Model, places: Mapping[int, Place]) -> Parts:
    writer = ModelWriter(model, places)
    header = writer.header().SerializeToString(deterministic=True)
    graph = onnx.GraphProto()
    deferred: list[ir.Value] = []
    writer.graph(graph, model.graph, deferred)
    body = graph.SerializeToString(deterministic=True)
    return Parts(header, body, [_weight(writer, value) for value in deferred])


def _weight(writer: ModelWriter, value: ir.Value) -> Weight:
    """Return an initializer that is stored in the model file, if need be as the message it was."""
    tensor = value.const_value
    assert tensor is not None, "only initializers with a tensor are deferred"
    if tensor.name != value.name:  # two initializers may share a tensor
        tensor.name = value.name
    if isinstance(tensor, ir.TensorProtoTensor):
        return Weight(tensor.raw)
    message, is_text = onnx.TensorProto(), tensor.dtype is ir.DataType.STRING
    writer.tensor(message, tensor, data=is_text)
    return Weight(message, None if is_text else stored(tensor))
