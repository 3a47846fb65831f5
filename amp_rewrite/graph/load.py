"""Read an ONNX model into an onnx_ir.Model that the caller may change."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir

from amp_rewrite.errors import LoadError

TRAINING_INFO = "amp_rewrite.training_info"


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    *,
    base_dir: str | os.PathLike[str] | None = None,
) -> ir.Model:
    """Return a fresh model; `source` is never changed.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model.
        base_dir: The folder that external data of a ModelProto or of bytes is relative to.
    """
    if isinstance(source, ir.Model):
        clone = source.clone()
        clone.meta.update(source.meta)
        return clone
    if isinstance(source, bytes):
        source = onnx.load_from_string(source)
    if not isinstance(source, onnx.ModelProto):
        try:
            base_dir = os.path.dirname(os.path.abspath(source))
            source = onnx.load(source, load_external_data=False)
        except Exception as error:
            raise LoadError("cannot be read", where=source, found=error) from error
    model = ir.from_proto(source)
    if base_dir is not None:
        ir.external_data.set_base_dir(model.graph, base_dir)
    model.meta[TRAINING_INFO] = list(source.training_info)
    return model
