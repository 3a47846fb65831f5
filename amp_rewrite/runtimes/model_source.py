"""A model as an engine reads it: one message, or a file if it is too large for that."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

import onnx_ir as ir

from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.graph.tensors import all_tensors, source_file

_IN_MEMORY = 1 << 28
"""Up to this many bytes of weights go to the engine as one message, which is copied twice."""

_SMALL = 1 << 10
"""Bytes up to which a weight may be a shape."""


def model_source(model: ir.Model, owner: object) -> bytes | str:
    """Return a model as bytes, or as the path of a file that ends when its `owner` does."""
    if not _is_large(model):
        return to_proto(model).SerializeToString()
    folder = tempfile.mkdtemp(prefix="amp_rewrite-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "model.onnx")
    save(_with_shapes_inside(model), path)
    return path


def _with_shapes_inside(model: ir.Model) -> ir.Model:
    """Return a model whose small weights are not in files: engines read shapes while they load."""
    copy = clone(model)
    for graph in (copy.graph, *copy.graph.subgraphs()):
        for value in graph.initializers.values():
            held = value.const_value
            if held is not None and source_file(held) is not None and held.nbytes <= _SMALL:
                value.const_value = ir.Tensor(held.numpy(), name=held.name)
    return copy


def _is_large(model: ir.Model) -> bool:
    tensors = list(all_tensors(model))
    external = any(source_file(t) is not None for t in tensors)
    return external or sum(t.nbytes for t in tensors) > _IN_MEMORY
