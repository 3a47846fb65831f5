"""Write an onnx_ir model: all of it or nothing, one tensor at a time."""

from __future__ import annotations

from typing import Any, cast

import onnx
import onnx_ir as ir

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.load import HasModel, load, unwrapped
from amp_rewrite.graph.io.model_files import INLINE_LIMIT, Path, Progress
from amp_rewrite.graph.io.read_object import messages_of
from amp_rewrite.graph.io.save_messages import save_messages
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.graph.tensors import all_tensors


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
    loaded = load(inner) if isinstance(inner, onnx.ModelProto) else inner
    _check_model(loaded)
    with paused_gc():
        save_messages(messages_of(loaded), path, progress)


def _check_model(model: object) -> None:
    if not isinstance(model, ir.Model):
        raise SaveError(
            "not a model",
            found=f"an object of type {type(model).__name__}",
            remedy="pass what amp_rewrite.load or rewrite returned",
        )
