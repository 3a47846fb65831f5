"""Read an ONNX model into an onnx_ir.Model that the caller may change."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir

from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.flat_model import FlatModel
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.paused_gc import paused_gc

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


def load(source: Source, *, base_dir: str | os.PathLike[str] | None = None) -> ir.Model:
    """Return a fresh, checked model; `source` is never changed.

    External data stay in their file: they are looked for and measured, not read. A ModelProto is
    referred to, not copied, so change it only when the model is no longer needed.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model.
        base_dir: The folder that external data of a ModelProto or of bytes are relative to; a file
            has them in its own folder.

    Raises:
        LoadError: The source is not an ONNX model, or its external data are not usable.
        GraphError: It is one, but the graph is not valid.
        StepError: It describes itself as a training step in another way than steps do.
    """
    with paused_gc():
        if isinstance(source, ir.Model):
            copied = clone(source)
            admit(FlatModel.of(copied))
            return copied
        return read_model(read_flat(source, base_dir)).model
