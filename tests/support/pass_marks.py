"""One pass of the painting on a small model: the marks that it makes, by what nodes compute."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from rewrite_text import lists_of, parse

from amp_rewrite.dtypes import FLOAT16, DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.values.intervals.interval import between

LOW = Mark(Color.ALLOW, Reason.ALLOW_LIST)
DENIED = Mark(Color.DENY, Reason.DENY_LIST)
OPSETS = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "custom" : 1]>'


def model_of(text: str, **constants: Any) -> onnx.ModelProto:
    """Parse a graph and give it those of some constants that it names, numbers as float32."""
    model = parse(text if text.lstrip().startswith("<") else f"{OPSETS} {text}")
    words = set(re.findall(r"\w+", text))
    for name, value in constants.items():
        if name not in words:
            continue
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def context_of(
    model: onnx.ModelProto | str,
    low: DType = FLOAT16,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    **fields: Any,
) -> PaintContext:
    """Return what passes know of a model.

    Args:
        model: The model, or its text.
        low: The low type.
        ranges: Input -> the least and the greatest of its elements.
        fields: Fields of the context that are not the least.
    """
    graph = build_type_graph(read_flat(parse(model) if isinstance(model, str) else model))
    names = graph.flat.value_names
    inputs = {names.index(name): between(*ends) for name, ends in (ranges or {}).items()}
    fields = {"lists": lists_of(low.name), "values": ValueFacts(graph, low, inputs), **fields}
    return PaintContext(graph, low=low, **fields)


def made(graph: TypeGraph, vertex: int) -> str:
    """Return the name of the first value that the node of a vertex makes."""
    return graph.flat.value_names[graph.flat.outputs_of(graph.nodes[vertex])[0]]


def vertices_of(context: PaintContext, *values: str) -> list[int]:
    """Return the vertices of the nodes that make values with these names first."""
    graph = context.type_graph
    return [v for v in range(len(graph)) if made(graph, v) in values]


def painting_of(
    context: PaintContext, low: Iterable[str] | None = None, denied: Iterable[str] = ()
) -> Painting:
    """Return a painting in which the nodes that make some values are low; None is all of them."""
    graph = context.type_graph
    vertices = range(len(graph)) if low is None else vertices_of(context, *low)
    marks = dict.fromkeys(vertices, LOW) | dict.fromkeys(vertices_of(context, *denied), DENIED)
    return Painting.blank(graph).with_marks(dict(sorted(marks.items())))


def marks_of(
    step: PaintPass, context: PaintContext, painting: Painting | None = None
) -> dict[str, Mark]:
    """Return the marks that a pass makes in a painting, by default a blank one.

    A mark's key is the first value that the node makes.
    """
    graph = context.type_graph
    before = Painting.blank(graph) if painting is None else painting
    marks = step.run(context, before).changes(before)
    return {made(graph, vertex): mark for vertex, mark in marks.items()}
