"""Which constants fit the low type, and what becomes of those that do not.

A constant that only serves as "lower than everything" (the mask in front of a Softmax) may
saturate at the lowest finite value, for minus infinity plus a fully masked row is NaN after
Softmax; at half of it where it is added to something, for -65504 + -20 is minus infinity again.
A bound of Clip may become infinite, which bounds nothing either. Any other constant with
elements out of range keeps its consumer in float32: clamping a BatchNormalization variance of
9.8e7 (ppocrv4_det) or a scale of 2^20 (silero_v4) changes the output beyond recognition. A constant
reaches its consumer through operators that only move elements (Reshape, If) all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.constants import constant_tensor, default_tensor
from amp_rewrite.graph.dataflow import TypeGraph, Vertex
from amp_rewrite.graph.tensors import WeightStats, chunks, weight_stats
from amp_rewrite.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.paint.reach import walk

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

MOVING = frozenset(
    {
        *("Abs", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Identity", "If", "Loop", "Neg", "Pad", "Reshape", "Scan", "Slice", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    }
)
"""Operators that hand a constant on, with its magnitude, to their own consumers."""

_REPEATING = frozenset({"ConstantOfShape", "If"})
_CARRYING = MOVING | MASKING


class _Step(NamedTuple):
    """A vertex that a constant reaches.

    Attributes:
        vertex: The vertex.
        is_low: Whether the constant is low all the way there, hence converted in the file.
        is_whole: Whether it arrives unchanged, rather than added to or multiplied by something.
    """

    vertex: Vertex
    is_low: bool
    is_whole: bool


@dataclass(slots=True)
class ConstantFacts:
    """The measured constants of one model; each is read once, when first asked for.

    Attributes:
        type_graph: The model's type graph.
        low: The type that constants would be converted to.
        converts: Whether constants are converted in the file; casts at run time saturate nothing.
        refused: Vertex -> the constant out of range that keeps it float32.
        zeroed: Vertex -> the constant rounding to zero that keeps it float32 (epsilons.py).
    """

    type_graph: TypeGraph
    low: DType
    converts: bool = True
    refused: dict[Vertex, ir.Value] = field(default_factory=dict)
    zeroed: dict[Vertex, ir.Value] = field(default_factory=dict)
    _stats: dict[ir.Value, WeightStats] = field(default_factory=dict)
    _masks: dict[Vertex, bool] = field(default_factory=dict)
    _sinks: dict[ir.Value, list[Vertex]] | None = None

    def stats(self, value: ir.Value, tensor: ir.TensorProtocol) -> WeightStats:
        """Return the statistics of a constant."""
        if value not in self._stats:
            self._stats[value] = weight_stats(tensor)
        return self._stats[value]

    def known(self, value: ir.Value) -> WeightStats:
        """Return the statistics of a constant, or of a default, that the passes looked at."""
        tensor = self._tensor(value) or default_tensor(self.type_graph, value)
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
        for value, tensor, readers in self._read():
            if not any(painting.is_allow(v) or v.node.op_type in _CARRYING for v in readers):
                continue
            stats = self.stats(value, tensor)
            if not stats.overflow(self.low):
                continue
            least = _overflows_below_only(tensor, self.low)
            for step in self._reached(readers, painting, least):
                vertex = step.vertex
                if painting.is_allow(vertex) and not self._tolerates(step, value, least):
                    marks[vertex] = self._mark(value, stats)
                    self.refused[vertex] = value
        return marks | self._overflowing_defaults(painting)

    def _overflowing_defaults(self, painting: Painting) -> dict[Vertex, Mark]:
        """Return a mark for every painted vertex that reads an input whose default does not fit.

        A state of a training step is such an input. It is cast at run time, which saturates
        nothing: a mask of -3.4e38 would become minus infinity.
        """
        marks: dict[Vertex, Mark] = {}
        nodes = self.type_graph.nodes
        for value in self.type_graph.model.graph.inputs:
            tensor = default_tensor(self.type_graph, value)
            found = [nodes[use.node].inputs[use.idx] for use in value.uses()]
            readers = [v for v in found if v is not None and painting.is_allow(v)]
            if tensor is None or not readers:
                continue
            stats = self.stats(value, tensor)
            if stats.overflow(self.low):
                marks |= dict.fromkeys(readers, self._mark(value, stats))
                self.refused |= dict.fromkeys(readers, value)
        return marks

    def saturates(
        self, value: ir.Value, tensor: ir.TensorProtocol, vertices: Iterable[Vertex]
    ) -> float:
        """Return the magnitude at which elements out of range end; 0 lets them become infinite."""
        readers = [v for v in vertices if v.node.op_type != "Clip"]
        if not readers or not self.stats(value, tensor).overflow(self.low):
            return 0.0
        return self.low.max / 2 if any(map(self._is_added, readers)) else self.low.max

    def fill(self, vertex: Vertex) -> float:
        """Return `saturates` for the constant that a ConstantOfShape repeats."""
        value = vertex.node.outputs[0]
        tensor = self._tensor(value)
        return 0.0 if tensor is None else self.saturates(value, tensor, [vertex])

    def _tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        """Return a constant's contents, or those that a ConstantOfShape repeats."""
        node = value.producer()
        if node is not None and node.op_type == "ConstantOfShape" and node.domain == "":
            fill = node.attributes.get("value")
            return None if fill is None or fill.is_ref() else fill.as_tensor()
        return constant_tensor(self.type_graph, value)

    def _read(self) -> Iterator[tuple[ir.Value, ir.TensorProtocol, list[Vertex]]]:
        """Yield the float32 constants, with the vertices that read or repeat them."""
        model, nodes = self.type_graph.model, self.type_graph.nodes
        values = [v for g in model.graphs() for v in g.initializers.values()]
        values += [
            n.outputs[0]
            for n in nodes
            if n.op_type in ("Constant", "ConstantOfShape") and n.outputs
        ]
        for value in values:
            tensor = self._tensor(value) if self.type_graph.is_float32(value) else None
            if tensor is None:
                continue
            found = [nodes[use.node].inputs[use.idx] for use in value.uses()]
            if value.producer() is not None and value in self.type_graph.producers:
                found.append(self.type_graph.producers[value])
            if value.is_graph_output():
                found += self._owners().get(value, ())
            yield value, tensor, [v for v in found if v is not None]

    def _owners(self) -> dict[ir.Value, list[Vertex]]:
        """Return, for each output of a subgraph, the owner's vertices that receive it."""
        if self._sinks is None:
            self._sinks = {}
            for graph, vertices in self.type_graph.sinks.items():
                for value, vertex in zip(graph.outputs, vertices, strict=True):
                    if vertex is not None:
                        self._sinks.setdefault(value, []).append(vertex)
        return self._sinks

    def _reached(
        self, readers: Iterable[Vertex], painting: Painting, least: bool
    ) -> Iterator[_Step]:
        """Yield the vertices that a constant reaches; float32 arithmetic hands on masks only."""
        stack = [_Step(vertex, self.converts, True) for vertex in readers]
        seen = set(stack)
        while stack:
            step = stack.pop()
            yield step
            vertex = step.vertex
            if vertex.node.domain != "":
                continue
            is_low = painting.is_allow(vertex)
            if vertex.node.op_type in MOVING:
                behind = (step.is_low and is_low, step.is_whole)
            elif least and not is_low and vertex.node.op_type in MASKING:
                behind = (False, False)
            else:
                continue
            new = [_Step(v, *behind) for v in self.type_graph.graph.successors(vertex)]
            stack += [s for s in dict.fromkeys(new) if s not in seen]
            seen.update(new)

    def _tolerates(self, step: _Step, value: ir.Value, least: bool) -> bool:
        """Tell whether a vertex gives the same result with the constant out of range replaced.

        A mask that arrives as float32 is cast at run time and becomes infinite. What else is
        computed with a constant may well be in range.
        """
        node = step.vertex.node
        if node.op_type == "Clip" and node.domain == "":
            return node.inputs[0] is not value
        is_mask = least and self._is_mask(step.vertex)
        return (is_mask and step.is_low) if step.is_whole else not is_mask

    def _is_added(self, vertex: Vertex) -> bool:
        """Tell whether a mask is added to something on its way to the ordering operators."""
        behind = walk(
            [vertex], self.type_graph.graph.successors, lambda v: v.node.op_type in MASKING
        )
        return any(v.node.op_type == "Add" for v in behind)

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
            passes = current.node.op_type in MASKING or current.node.op_type in _REPEATING
            if not passes or not consumers or _is_output(current):
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
