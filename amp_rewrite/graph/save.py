"""Write a model: atomically, streaming its tensors."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.load import TRAINING_INFO


def check_output_path(
    input_path: str | os.PathLike[str], output_path: str | os.PathLike[str]
) -> None:
    """Refuse an output that is the input, under whatever name.

    Raises:
        SaveError: Both paths lead to one file.
    """
    if os.path.exists(output_path) and os.path.samefile(input_path, output_path):
        raise SaveError(
            "the output is the input", where=output_path, remedy="choose another output path"
        )


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a ModelProto; external tensors stay references."""
    proto = ir.to_proto(model)
    proto.training_info.extend(model.meta.get(TRAINING_INFO, ()))
    return proto


def save(model: ir.Model, path: str | os.PathLike[str]) -> None:
    """Write the model to `path`."""
    onnx.save(to_proto(model), path)
