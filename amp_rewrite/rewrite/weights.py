"""Which constants fit the low type, and what becomes of those that do not.

A constant that only serves as "lower than everything" (the mask in front of a Softmax) may
saturate at the lowest finite value, for minus infinity plus a fully masked row is NaN after
Softmax. A bound of Clip may become infinite, which bounds nothing either. Any other constant with
elements out of range keeps its consumer in float32: clamping a BatchNormalization variance of
9.8e7 (ppocrv4_det) or a scale of 2^20 (silero_v4) changes the output beyond recognition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.tensors import WeightStats, chunks, weight_stats
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewrite.constants import constant_tensor

ORDERING = frozenset(
    {"ArgMax", "Hardmax", "LogSoftmax", "Max", "MaxPool", "ReduceMax", "Softmax", "TopK"}
)
"""Operators for which a value far below all others is as good as minus infinity."""

MASKING = frozenset(
    {
        *("Add", "Where", "Mul", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze", "Concat", "Gather", "Pad", "Cast", "Flatten", "Split"),
    }
)
"""Operators through which a mask constant reaches them."""


@dataclass(slots=True)
class ConstantFacts:
    """The measured constants of one model; each is read once, when first asked for.

    Attributes:
        type_graph: The model's type graph.
        low: The type that constants would be converted to.
        refused: Vertex -> the constant out of range that keeps it float32.
        zeroed: Vertex -> the constant rounding to zero that keeps it float32 (epsilons.py).
    """

    type_graph: TypeGraph
    low: DType
    refused: dict[Vertex, ir.Value] = field(default_factory=dict)
    zeroed: dict[Vertex, ir.Value] = field(default_factory=dict)
    _stats: dict[ir.Value, WeightStats] = field(default_factory=dict)
    _masks: dict[Vertex, bool] = field(default_factory=dict)

    def stats(self, value: ir.Value, tensor: ir.TensorProtocol) -> WeightStats:
        """Return the statistics of a constant."""
        if value not in self._stats:
            self._stats[value] = weight_stats(tensor)
        return self._stats[value]

    def known(self, value: ir.Value) -> WeightStats:
        """Return the statistics of a constant that the passes looked at."""
        tensor = constant_tensor(self.type_graph, value)
        return WeightStats() if tensor is None else self.stats(value, tensor)

    def constants(self) -> list[ir.Value]:
        """Return every float32 constant that something reads."""
        model = self.type_graph.model
        values = [v for g in model.graphs() for v in g.initializers.values()]
        values += [n.outputs[0] for n in self.type_graph.nodes if n.op_type == "Constant"]
        return [v for v in values if v.uses() and constant_tensor(self.type_graph, v) is not None]

    def overflows(self, painting: Painting) -> Mapping[Vertex, Mark]:
        """Return a mark for every painted vertex that a constant out of range keeps float32."""
        marks: dict[Vertex, Mark] = {}
        for value, tensor, vertices in self._converted(painting):
            stats = self.stats(value, tensor)
            if not stats.overflow(self.low):
                continue
            for vertex in vertices:
                if not self._tolerates(vertex, value, tensor):
                    marks[vertex] = self._mark(value, stats)
                    self.refused[vertex] = value
        return marks

    def saturates(self, value: ir.Value, tensor: ir.TensorProtocol, vertices: list[Vertex]) -> bool:
        """Tell whether a constant's elements out of range become the lowest finite value."""
        if not self.stats(value, tensor).overflow(self.low):
            return False
        return any(v.node.op_type != "Clip" for v in vertices)

    def _converted(
        self, painting: Painting
    ) -> Iterator[tuple[ir.Value, ir.TensorProtocol, list[Vertex]]]:
        """Yield the constants that painted vertices read, with those vertices."""
        readers: dict[ir.Value, list[Vertex]] = {}
        for vertex in painting.allowed():
            entry = self.type_graph.nodes[vertex.node]
            for value, port in zip(vertex.node.inputs, entry.inputs, strict=True):
                if port is vertex and value is not None:
                    readers.setdefault(value, []).append(vertex)
        for value, vertices in readers.items():
            tensor = constant_tensor(self.type_graph, value)
            if tensor is not None:
                yield value, tensor, vertices

    def _tolerates(self, vertex: Vertex, value: ir.Value, tensor: ir.TensorProtocol) -> bool:
        """Tell whether a vertex gives the same result with the constant out of range replaced."""
        node = vertex.node
        if node.op_type == "Clip" and node.domain == "":
            return node.inputs[0] is not value
        return self._is_mask(vertex) and _overflows_below_only(tensor, self.low)

    def _is_mask(self, vertex: Vertex) -> bool:
        """Tell whether everything that a vertex computes ends in an ordering operator."""
        if vertex not in self._masks:
            self._masks[vertex] = self._leads_to_ordering(vertex)
        return self._masks[vertex]

    def _leads_to_ordering(self, vertex: Vertex) -> bool:
        seen, stack = {vertex}, [vertex]
        while stack:
            current = stack.pop()
            if current.node.op_type in ORDERING:
                continue
            consumers = list(self.type_graph.graph.successors(current))
            if current.node.op_type not in MASKING or not consumers or _is_output(current):
                return False
            new = [c for c in consumers if c not in seen]
            seen.update(new)
            stack.extend(new)
        return True

    def _mark(self, value: ir.Value, stats: WeightStats) -> Mark:
        detail = (
            f"constant {value.name} reaches {stats.max_abs:.4g}, "
            f"{self.low.name} ends at {self.low.max:.6g}"
        )
        return Mark(Color.NONE, Reason.CONSTANT_OVERFLOW, None, detail)


def _is_output(vertex: Vertex) -> bool:
    return any(v.is_graph_output() for v in vertex.node.outputs)


def _overflows_below_only(tensor: ir.TensorProtocol, low: DType) -> bool:
    """Tell whether every finite element out of range is negative."""
    limit = np.float32(low.overflow)
    return not any(bool(((c >= limit) & np.isfinite(c)).any()) for c in chunks(tensor))
