"""Read what users give as a model, whatever it is, into numbers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import onnx

from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.proto.flat_proto import FlatProto

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source


def read_source(source: Source, *, inline_functions: bool) -> FlatProto:
    """Read a model, and inline its functions if they are to be.

    Raises:
        AmpError: It is not a valid model, or a function cannot be inlined.
    """
    if isinstance(source, str | os.PathLike | bytes | onnx.ModelProto):
        flat = read_flat(source)
    else:
        from amp_rewrite.graph.io.load import unwrapped
        from amp_rewrite.graph.io.read_object import read_object

        given = unwrapped(source)
        flat = read_object(given) if is_object(given) else read_flat(given)
    if not (inline_functions and flat.functions):
        return flat
    from amp_rewrite.graph.io.functions import inline
    from amp_rewrite.graph.io.read import read_model
    from amp_rewrite.graph.io.read_object import read_object

    model = read_model(flat)
    inline(model)
    return read_object(model)


def is_object(given: object) -> bool:
    """Tell whether something is a model of onnx_ir, without importing that."""
    loaded = sys.modules.get("onnx_ir")
    return loaded is not None and isinstance(given, loaded.Model)
