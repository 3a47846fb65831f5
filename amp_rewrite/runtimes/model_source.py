"""A model as an engine reads it: one message, or a file if it is too large for that."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

import onnx_ir as ir

from amp_rewrite.graph.io.datafile import all_tensors, source_file
from amp_rewrite.graph.io.save import save, to_proto

_IN_MEMORY = 1 << 28
"""Up to this many bytes of weights go to the engine as one message, which is copied twice."""


def model_source(model: ir.Model, owner: object) -> bytes | str:
    """Return a model as bytes, or as the path of a file.

    Args:
        model: Any model.
        owner: Whose end is the end of the file, too.
    """
    if not _is_large(model):
        return to_proto(model).SerializeToString()
    folder = tempfile.mkdtemp(prefix="amp_rewrite-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "model.onnx")
    save(model, path)
    return path


def _is_large(model: ir.Model) -> bool:
    tensors = list(all_tensors(model))
    external = any(source_file(t) is not None for t in tensors)
    return external or sum(t.nbytes for t in tensors) > _IN_MEMORY
