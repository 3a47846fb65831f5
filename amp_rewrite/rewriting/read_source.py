"""Read what users give as a model, whatever it is, into numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import onnx

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.read_flat import read_flat

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source

# operators: those whose attributes say the type of what they make.
_SOURCES = ("Cast", "Constant", "ConstantOfShape")


def read_source(source: Source, *, inline_functions: bool) -> FlatGraph:
    """Read a model, and inline its functions if they are to be."""
    if isinstance(source, FlatGraph):
        flat = source
    elif isinstance(source, str | os.PathLike | bytes | onnx.ModelProto):
        flat = read_flat(source)
    else:
        from amp_rewrite.graph.io.load import unwrapped
        from amp_rewrite.graph.io.read_object import read_object

        inner = unwrapped(source)
        flat = read_object(inner) if is_object(inner) else read_flat(inner)
    if not (inline_functions and flat.functions):
        return flat
    from amp_rewrite.graph.io.functions import inline
    from amp_rewrite.graph.io.read import read_model
    from amp_rewrite.graph.io.read_object import read_object

    model = read_model(flat)
    inline(model)
    return read_object(model)


def mentions(flat: FlatGraph, dtypes: Iterable[DType]) -> bool:
    """Tell whether anything in a model may have one of some types; most models have none.

    Inputs, constants and casts are looked at, from which all types follow; none is inferred.
    """
    numbers = {dtype.number for dtype in dtypes}
    if not {tensor(number) for number in numbers}.isdisjoint(flat.recorded):
        return True
    for node in flat.nodes_of(*_SOURCES):
        for attribute in flat.nodes[node].attribute:
            if {attribute.i, attribute.t.data_type} & numbers:
                return True
    return False


def is_object(model: object) -> bool:
    """Tell whether something is a model of onnx_ir, without importing that."""
    loaded = sys.modules.get("onnx_ir")
    return loaded is not None and isinstance(model, loaded.Model)
