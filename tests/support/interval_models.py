"""The intervals of small models in ONNX text, whose inputs are said to lie within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.intervals.interval import ANY, Interval, between, point
from amp_rewrite.values.intervals.propagate import Intervals, intervals_of

Given = Mapping[str, Any]
"""Input -> an interval, a number, or the least and greatest of some."""


def model_of(
    body: str,
    inputs: str = "float[2,3] x",
    *,
    constants: str = "",
    made: str = "float[N] y",
    opset: int = 21,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """Parse a model; `arrays` are constants that text does not spell."""
    domains = f'"" : {opset}, "com.microsoft" : 1, "custom" : 1'
    model = onnx.parser.parse_model(
        f"<ir_version: {8 if opset < 21 else 10}, opset_import: [{domains}]>"
        f" g ({inputs}) => ({made}) <{constants}> {{ {body} }}"
    )
    for name, array in (arrays or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def known_of(model: onnx.ModelProto, given: Given | None = None) -> Intervals:
    """Return the intervals of a model's values by number."""
    graph = build_type_graph(read_flat(model))
    names = graph.flat.value_names
    said = {names.index(name): _interval(what) for name, what in (given or {}).items()}
    return intervals_of(graph, inputs=said)


def named(known: Intervals, name: str = "y") -> Interval:
    """Return the interval of the value with a name; the first one if there are more."""
    return known[known.flat.value_names.index(name)]


def bounds_of(
    body: str,
    inputs: str = "float[2,3] x",
    given: Given | None = None,
    *,
    value: str = "y",
    **options: Any,
) -> Interval:
    """Return the interval of a value of a model; options are those of `model_of`."""
    return named(known_of(model_of(body, inputs, **options), given), value)


def _interval(what: Any) -> Interval:
    if isinstance(what, Interval):
        return what
    return between(*what) if isinstance(what, tuple) else point(float(what))


def near(what: Any) -> Any:
    """Return what an interval is compared with: equal but for the rounding of a few operations."""
    return pytest.approx(tuple(_interval(what)), rel=1e-5, abs=1e-30)


def ends(low: float, high: float) -> Any:
    """Return what the two ends of an interval are compared with."""
    return pytest.approx((low, high), rel=1e-5, abs=1e-30)


NOTHING = tuple(ANY)
"""What is known of a value of which nothing is."""


LOOPED = "float[2] x, float[2] z, int64 n"


def loop(nodes: str, more: str = "") -> str:
    """Return a Loop whose state s begins with x, and that gives what else its body does; then y."""
    stacked = "".join(f", float[2] {name}" for name in more.split())
    outer = ", ".join(["s2", *(f"{name}2" for name in more.split())])
    return f"""{outer} = Loop(n, , x) <body = b (int64 i, bool c, float[2] s)
        => (bool o, float[2] s1{stacked}) {{ o = Identity(c) {nodes} }}> y = Cos(s2)"""
