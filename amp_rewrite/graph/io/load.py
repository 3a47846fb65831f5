"""Read an ONNX model into an onnx_ir.Model that the caller may change."""

from __future__ import annotations

from amp_rewrite.base import late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir

# isort: split
import os
from typing import Any, Protocol

import onnx
import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.io.read_object import number_object, read_object
from amp_rewrite.graph.paused_gc import paused_gc


class HasModel(Protocol):
    """An object with a model, such as what `rewrite`, `convert` and `raise_opset` return."""

    @property
    def model(self) -> ir.Model:
        """The model."""
        ...


Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model | HasModel | FlatGraph


def load(source: Source, *, base_dir: str | os.PathLike[str] | None = None) -> ir.Model:
    """Return a fresh, checked model; `source` is never changed.

    External data stay in their file: they are looked for and measured, not read. A ModelProto is
    referred to, not copied, so change it only when the model is no longer needed.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model; or what has one, such
            as the result of `rewrite`.
        base_dir: The folder that external data of a ModelProto or of bytes are relative to; a file
            has them in its own folder.

    Raises:
        LoadError: The source is not an ONNX model, or its external data are not usable.
        GraphError: It is one, but the graph is not valid.
        StepError: It describes itself as a training step in another way than steps do.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> [node.name for node in model.graph]
        ['fc1', 'act', 'exp', 'fc2']
    """
    model = unwrapped(source)
    with paused_gc():
        if isinstance(model, FlatGraph):  # it was checked when it was read
            return read_model(model)
        if isinstance(model, ir.Model):
            try:
                copied = clone(model)
            except GraphError:  # a message can be mended, and says better what is wrong
                return read_model(read_object(model))
            check(copied)
            return copied
        return read_model(read_flat(model, base_dir))


def check(model: ir.Model) -> None:
    """Refuse an object that is not a valid model."""
    admit(number_object(model))


def unwrapped(source: Any) -> Any:
    """Return the model of what has one; anything else as it is."""
    held = getattr(source, "model", None)
    return held if isinstance(held, ir.Model) else source
