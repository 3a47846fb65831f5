"""What kind of numbers small models in ONNX text compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx.parser
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.counts.constant_places import constant_places
from amp_rewrite.values.counts.count_rules import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.counts.find_demands import Demand, find_demands
from amp_rewrite.values.intervals.propagate import intervals_of

HEADER = '<ir_version: 10, opset_import: ["" : 22, "my" : 1, "com.microsoft" : 1]>'


@dataclass
class Counted:
    """A model, and what is known of its numbers; float32 inputs are inputs of the model."""

    graph: TypeGraph

    @cached_property
    def counts(self) -> Counts:
        """What is known of its values."""
        graph, intervals = self.graph, intervals_of(self.graph)
        given = {v: Fact(Kind.INPUT, v) for v in graph.flat.main.inputs if graph.is_retyped(v)}
        given |= constant_places(graph)
        return Counts(graph, lambda v: intervals[v].magnitude, given)

    @cached_property
    def demands(self) -> list[Demand]:
        """The inputs whose absolute error matters."""
        return find_demands(self.graph)

    def number(self, name: str) -> int:
        """Return the number of a value."""
        return self.graph.flat.value_names.index(name)

    def fact(self, name: str = "y") -> Fact | None:
        """Return what is known of a value."""
        return self.counts[self.number(name)]

    def vertex(self, name: str) -> int:
        """Return the vertex that computes a value."""
        return self.graph.source[self.number(name)]

    def origin(self, name: str = "y") -> str:
        """Return the name of the value from which what is known of another one spread."""
        fact = self.fact(name)
        assert fact is not None
        return self.graph.flat.value_names[fact.origin]

    def maker(self, vertex: int | None) -> str | None:
        """Return the name of what a vertex computes; None for none."""
        if vertex is None:
            return None
        flat = self.graph.flat
        return flat.value_names[flat.outputs_of(self.graph.nodes[vertex])[0]]


def counted(body: str, inputs: str, functions: str = "", **constants: np.ndarray) -> Counted:
    """Return a model by its nodes."""
    source = onnx.parser.parse_model(
        f"{HEADER} g ({inputs}) => (float[] y) {{ {body} }} {functions}"
    )
    for name, array in constants.items():
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    return Counted(build_type_graph(read_source(source, inline_functions=False)))
