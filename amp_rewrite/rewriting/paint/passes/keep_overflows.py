"""Constants that do not fit the low type, and who stays float32 for one.

A mask that is "lower than everything" may saturate (rewriting/plan/saturation.py), and a bound of
Clip may become infinite, which bounds nothing either. Any other constant with elements out of range
keeps its consumer in float32: clamping a BatchNormalization variance of 9.8e7 (ppocrv4_det) or a
scale of 2^20 (silero_v4) changes the output beyond recognition. A constant reaches its consumer
through operators that only move elements (Reshape, If) as well.

Evidence: ppocrv4_det in float16: error over 1,000 % without the pass, passed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from amp_rewrite.graph.constants import default_tensor, filled_tensor, is_repeated
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Tensor
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.masks import (
    MASKING,
    ends_in_ordering,
    enters_as_mask,
    low_readers,
    overflows_below_only,
    saturates_in_float32,
)
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.weight_stats import WeightStats

_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN, Trait.HOLDS, Trait.SUBGRAPHS)
"""Operators that hand a constant on, with its magnitude, to their own consumers."""

_CARRYING = _HANDING_ON | MASKING


class KeepOverflows(PaintPass):
    """Unpaint what computes with a constant out of range."""

    name = "keep-overflows"
    places = (
        Place(Stage.KEEPING, 80, "consumers of constants out of range"),
        Place(Stage.JUDGING, 60),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; a mark names the constant."""
        if context.values.fits:
            return painting
        search = _Search(context, painting)
        search.constants()
        search.defaults()
        return painting.with_marks(search.marks)


class _Step(NamedTuple):
    """A vertex that a constant reaches.

    Attributes:
        vertex: The vertex.
        is_low: Whether the constant is low all the way there, hence converted in the file.
        is_whole: Whether it arrives unchanged, rather than added to or multiplied by something.
        is_bias: Whether it arrives as the mask of an attention, and nowhere else.
    """

    vertex: int
    is_low: bool
    is_whole: bool
    is_bias: bool


@dataclass
class _Search:
    """One search in one painting; `marks` are what it found."""

    context: PaintContext
    painting: Painting
    marks: dict[int, Mark] = field(default_factory=dict[int, Mark])
    _masks: dict[int, bool] = field(default_factory=dict[int, bool])

    def __post_init__(self) -> None:
        self.type_graph = self.context.type_graph

    def constants(self) -> None:
        """Mark what a constant reaches unless it gives the same result with it replaced."""
        low = self.context.low
        concerned = (self.painting.allow | self.type_graph.called(_CARRYING)).tobytes()
        constants = [
            c for c in _read_constants(self.type_graph) if any(concerned[v] for v in c[-1])
        ]
        self.context.values.measure_all({value: tensor for value, tensor, _ in constants})
        for value, tensor, readers in constants:
            stats = self.context.values.stats(value, tensor)
            if not stats.overflow(low):
                continue
            least = overflows_below_only(self.type_graph.flat.elements(tensor), low)
            for step in self._reached(value, readers, least):
                if self.painting.is_allow(step.vertex) and not self._tolerates(step, value, least):
                    self.marks[step.vertex] = self._mark(value, stats)

    def defaults(self) -> None:
        """Mark what reads an input whose default does not fit.

        A state of a training step is such an input. It is cast at run time, which saturates
        nothing: a mask of -3.4e38 would become minus infinity.
        """
        for value in self.type_graph.flat.main.inputs:
            readers = [v for v in self.type_graph.readers(value) if self.painting.is_allow(v)]
            tensor = default_tensor(self.type_graph, value) if readers else None
            if tensor is None:
                continue
            stats = self.context.values.stats(value, tensor)
            if stats.overflow(self.context.low):
                self.marks |= dict.fromkeys(readers, self._mark(value, stats))

    def _reached(self, value: int, readers: Iterable[int], least: bool) -> Iterator[_Step]:
        """Yield the vertices that a constant reaches; float32 arithmetic hands on masks only."""
        graph, converts = self.type_graph, self.context.converts_weights
        stack = [
            _Step(vertex, converts, True, enters_as_mask(graph, vertex, lambda v: v == value))
            for vertex in readers
        ]
        seen = set(stack)
        while stack:
            step = stack.pop()
            yield step
            called = operator(self.type_graph.operator_of(step.vertex))
            is_low = self.painting.is_allow(step.vertex)
            if called in _HANDING_ON:
                behind = (step.is_low and is_low, step.is_whole)
            elif least and not is_low and called in MASKING:
                behind = (False, False)
            else:
                continue
            new = [
                _Step(v, *behind, self._is_bias(step.vertex, v))
                for v in graph.successors(step.vertex)
            ]
            stack += [s for s in dict.fromkeys(new) if s not in seen]
            seen.update(new)

    def _is_bias(self, vertex: int, consumer: int) -> bool:
        source = self.type_graph.source
        return enters_as_mask(self.type_graph, consumer, lambda v: source[v] == vertex)

    def _tolerates(self, step: _Step, value: int, least: bool) -> bool:
        """Tell whether a vertex gives the same result with the constant out of range replaced.

        A mask that arrives as float32 is cast at run time and becomes infinite, unless it saturates
        before, as a constant or in front of the Cast. What else is computed with a constant may
        well be in range.
        """
        flat, node = self.type_graph.flat, self.type_graph.nodes[step.vertex]
        if flat.called(node)[:2] == ("", "Clip"):
            return flat.inputs_of(node)[0] != value
        is_mask = least and (step.is_bias or self._is_mask(step.vertex))
        if is_mask and not (step.is_low and step.is_whole):
            return saturates_in_float32(self.context, value) or self._is_clamped(step.vertex)
        return is_mask or not step.is_whole or (not step.is_low and self._is_clamped(step.vertex))

    def _is_clamped(self, vertex: int) -> bool:
        """Tell whether all that a vertex reads behind Casts ends where the low type does.

        Of what is low already, that was asked where it became so.
        """
        graph, allow = self.type_graph, self.painting.allow
        node, flat = graph.nodes[vertex], graph.flat
        slots = range(flat.input_start[node], flat.input_start[node + 1])
        read = {flat.inputs[slot] for slot in slots if graph.reads[slot] == vertex}
        cast_inputs = [v for v in read if (s := graph.source[v]) != ABSENT and not allow[s]]
        if not cast_inputs:
            return all(graph.source[v] != ABSENT for v in read)
        limit = self.context.values.masks.limit
        return all(limit(v, low_readers(graph, self.painting, v)) for v in cast_inputs)

    def _is_mask(self, vertex: int) -> bool:
        if vertex not in self._masks:
            self._masks[vertex] = ends_in_ordering(self.type_graph, vertex)
        return self._masks[vertex]

    def _mark(self, value: int, stats: WeightStats) -> Mark:
        low, name = self.context.low, self.type_graph.flat.value_names[value]
        detail = f"constant {name} reaches {stats.max_abs:.4g}, {low.name} ends at {low.max:.6g}"
        return Mark(Color.NONE, Reason.CONSTANT_OVERFLOW, None, detail, value)


def _read_constants(type_graph: TypeGraph) -> Iterator[tuple[int, Tensor, list[int]]]:
    """Yield the float32 constants of a model, and the vertices that read or repeat each."""
    flat, owners = type_graph.flat, _owners(type_graph)
    holders = {i for i, called in enumerate(flat.operators) if has(called, Trait.HOLDS)}
    makers = [n for n, called in enumerate(flat.operator) if called in holders]
    values = [value for body in flat.bodies for value in body.initializers]
    values += [flat.outputs_of(n)[0] for n in makers if flat.outputs_of(n)]
    for value in values:
        tensor = filled_tensor(type_graph, value) if type_graph.is_float32(value) else None
        if tensor is None:
            continue
        readers = type_graph.readers(value)
        if is_repeated(flat, value):
            readers.append(type_graph.source[value])
        readers += owners.get(value, ())
        yield value, tensor, [v for v in readers if v != ABSENT]


def _owners(type_graph: TypeGraph) -> dict[int, list[int]]:
    """Return, for each output of a subgraph, the owner's vertices that receive it."""
    owners: dict[int, list[int]] = {}
    for number, vertices in type_graph.sinks.items():
        for value, vertex in zip(type_graph.flat.bodies[number].outputs, vertices, strict=True):
            owners.setdefault(value, []).append(vertex)
    return owners
