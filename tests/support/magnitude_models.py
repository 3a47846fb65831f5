"""How large the numbers of small models in ONNX text are likely to be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.intervals.interval import between
from amp_rewrite.values.intervals.propagate import Intervals, intervals_of
from amp_rewrite.values.magnitudes.estimate import Estimate
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.magnitudes.outliers import Outliers

Ranges = Mapping[str, tuple[float, float]]
"""Input -> its least and greatest number."""

MASK = 65520.0


def graph_of(
    body: str,
    inputs: str,
    **arrays: np.ndarray | float,
) -> TypeGraph:
    """Return the type graph of a model that computes y; `arrays` are its constants."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>'
        f" g ({inputs}) => (float[] end) {{ {body} end = Identity(y) }}"
    )
    for name, array in arrays.items():
        held = np.asarray(array, np.float32 if isinstance(array, float) else None)
        model.graph.initializer.append(numpy_helper.from_array(held, name))
    return build_type_graph(read_source(model, inline_functions=False))


def bounds_of(graph: TypeGraph, ranges: Ranges | None = None) -> Intervals:
    """Return the intervals of a model's values."""
    names = graph.flat.value_names
    given = {names.index(name): between(*ends) for name, ends in (ranges or {}).items()}
    return intervals_of(graph, inputs=given)


def estimate_of(graph: TypeGraph, ranges: Ranges | None = None, name: str = "y") -> Estimate | None:
    """Return the estimate of a value."""
    return Estimates(graph, bounds_of(graph, ranges))[graph.flat.value_names.index(name)]


def outliers_of(graph: TypeGraph, ranges: Ranges | None = None) -> Outliers:
    """Return the outliers of a model's values."""
    intervals = bounds_of(graph, ranges)
    return Outliers(graph, intervals, Estimates(graph, intervals), MASK)
