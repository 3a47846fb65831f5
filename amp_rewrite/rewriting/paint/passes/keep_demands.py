"""Counts, angles and places stay float32, for their absolute error matters.

A position of 12,345 is 12,352 in bfloat16: its cosine and the element that it selects depend on the
last digit. So

- counts (values/counts) keep float32, and whatever computes with them, until they are normalised;
- an operator that asks for the absolute error of an input (a period, a jump, coordinates) demands
  float32 of what computes it, back to where a layer begins or rounding does no harm;
- what makes a frequency of what a layer gives is float32 where time makes an angle of it (twelve
  cases of tests/conformance/test_constant_places.py are 16-bit without that).

Evidence: a grid of pixels in front of GridSample in float16: error 70 % of the output's size
without the pass, 0.14 % with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from amp_rewrite.graph.constants import moved_from, stored_tensor
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.traits import Trait
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, SIGNED, Worklist
from amp_rewrite.values.counts.constant_places import SHORTEST, constant_places
from amp_rewrite.values.counts.count_rules import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.counts.find_demands import (
    ANGLE,
    COORDINATES,
    Demand,
    Step,
    find_demands,
    find_differences,
    follow_demands,
)

# what may stand between a phase and the frequencies that it is made of.
_PASSED = SIGNED | ADDED | {"Mod"}

# operators: arithmetic of a frequency.
_LINEAR = _PASSED | {"Clip", "Div", "Dropout", "Max", "Min", "Mul", "Resize", "Upsample"}

# operators: functions that make a frequency of what a layer gives.
_CURVES = {
    *("Celu", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log"),
    *("Mish", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"),
    *("Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
}


@keep("keep-demands", Reason.DEMAND, Stage.GIVEN, 40)
def keep_demands(m: Match, ask: Ask) -> Kept:
    """Mark every vertex that computes a count, an angle, an index or a coordinate.

    A demand for a count tells both, and leads to who demands.
    """
    known = _Known(m, ask.context)
    counts = known.counts()
    for vertex, (demand, because) in known.demands().items():
        detail = f"{demand.noun} of {demand.name}"
        detail += f", {counts[vertex].detail}" if vertex in counts else ""
        yield Keep(detail, (), [vertex], because)
    yield from counts.values()
    for demand in reversed(known.angles()):  # the last one is told
        nodes = _behind_angle(m, demand.value, known.is_place, lambda v: _is_small(m, v))
        yield Keep(f"frequency of {demand.name}", nodes)


def demanded_inputs(m: Match, context: PaintContext) -> Mapping[int, Demand]:
    """Return the inputs of a model of which the absolute error matters, and who says so."""
    return _Known(m, context).demanded()


class _Known:
    """The counts of a model, and who demands what."""

    def __init__(self, m: Match, context: PaintContext) -> None:
        self._m, self._context = m, context
        self._demands = find_demands(m.graph)
        inputs = _float_inputs(context) if self._demands else {}
        looks = bool(self._demands) or _subtracts_constants(m.flat)
        self._places = constant_places(m.graph) if looks else {}
        values = {**inputs, **self._places}
        self._counts = Counts(m.graph, lambda v: _magnitude(m, v), values)
        self._differences = find_differences(m.graph, self._counts)

    def angles(self) -> list[Demand]:
        """Return who demands an angle."""
        return [demand for demand in self._demands if demand.noun == ANGLE]

    def is_place(self, value: int) -> bool:
        """Tell whether a value runs through places and no data have a part in it."""
        fact = self._counts[value]
        return fact is not None and fact.is_place

    def counts(self) -> dict[int, Keep]:
        """Return, by vertex, what makes a count that rounding would change, and what reads one."""
        kept: dict[int, Keep] = {}
        for vertex, fact in self._counts.by_vertex.items():
            if fact.kind is not Kind.COUNT or self._is_harmless(vertex, fact):
                continue
            detail, because = f"count from {self._named(fact.origin)}", self._counts.because(vertex)
            kept[vertex] = Keep(detail, (), [vertex], because, reason=Reason.COUNT)
            for reader in self._m.graph.successors(vertex):
                read = Keep(detail, (), [reader], vertex, reason=Reason.COUNT)
                kept.setdefault(reader, read)
        return kept

    def _named(self, value: int) -> str:
        """Return what to call the origin of a count: its node, or itself if it is an input."""
        node = self._m.maker(value)
        return self._m.flat.value_names[value] if node == ABSENT else self._m.name(node)

    def demands(self) -> dict[int, Step]:
        """Return, by vertex, what computes the inputs whose absolute error matters.

        Lists keep most of those who demand in float32, and not comparisons or Floor. Where these
        read what is kept, or places, they are marked as well: a Cast in front of them would round
        it. So is everyone whom somebody else made low.
        """
        graph, demands = self._m.graph, [*self._demands, *self._differences]
        followed, _ = self._followed()
        steps = {d.vertex: Step(d, None) for d in self._differences} | followed
        kept = followed.keys()  # of two who demand one value, only the first is told there
        last = [s.demand for s in steps.values() if s.because == s.demand.vertex]
        last += [d for d in demands if graph.source[d.value] in kept]
        last += [demand for demand in demands if self._reads_places(demand)]
        if self._context.given is None:
            painted = (ListName.ALLOW, ListName.CLEAR, ListName.INFER)
            last = [d for d in last if self._context.list_of(d.vertex) in painted]
        return {demand.vertex: Step(demand, None) for demand in last} | steps

    def demanded(self) -> Mapping[int, Demand]:
        """Return, by input, who demands it."""
        return self._followed()[1]

    def _followed(self) -> tuple[dict[int, Step], dict[int, Demand]]:
        demands = [*self._demands, *self._differences]
        return follow_demands(self._m.graph, demands, self._counts, self._is_harmless)

    def _reads_places(self, demand: Demand) -> bool:
        """Tell whether one who demands reads a constant that the low type would move."""
        fact = self._places.get(demand.value)
        if fact is None or demand.noun == COORDINATES:
            return False
        return not _is_exact(self._m, fact, _magnitude(self._m, demand.value))

    def _is_harmless(self, vertex: int, fact: Fact, small: bool = True) -> bool:
        """Tell whether rounding what a vertex computes does no harm."""
        m = self._m
        node = m.graph.nodes[vertex]
        made = enumerate(m.flat.outputs_of(node), m.flat.output_start[node])
        results = [value for slot, value in made if m.graph.writes[slot] == vertex]
        is_open = m.has(node, Trait.SUBGRAPHS)
        largest = math.inf if is_open else max((_magnitude(m, v) for v in results), default=0.0)
        return _is_exact(m, fact, largest) or (small and _is_tolerable(m, largest))


def _is_exact(m: Match, fact: Fact, largest: float) -> bool:
    """Tell whether numbers are whole, and no larger than up to where the type has no gaps."""
    return fact.whole and largest < 2 / m.low.epsilon + 1  # intervals have some slack


def _is_tolerable(m: Match, largest: float) -> bool:
    """Tell whether rounding moves such a number by no more than the type's tolerance."""
    return largest * m.low.epsilon / 2 <= m.low.rtol


def _is_small(m: Match, value: int) -> bool:
    return _is_tolerable(m, _magnitude(m, value))


def _magnitude(m: Match, value: int) -> float:
    return m.facts.intervals[value].magnitude


def _float_inputs(context: PaintContext) -> Mapping[int, Fact]:
    """Return what is known of the inputs that hold numbers of which no layer is known."""
    graph, low = context.type_graph, tensor(context.low.number)
    inputs = [v for v in graph.flat.main.inputs if graph.is_retyped(v) or graph.types[v] == low]
    return {v: Fact(Kind.INPUT, v) for v in inputs if v not in context.variables}


def _subtracts_constants(flat: FlatGraph) -> bool:
    """Tell whether some Sub reads a constant of which a run of places may consist."""
    read = {moved_from(flat, v) for n in flat.nodes_of("Sub") for v in flat.inputs_of(n)[:2]}
    held = (stored_tensor(flat, v) for v in read - {ABSENT})
    return any(tensor is not None and tensor.size >= SHORTEST for tensor in held)


def _behind_angle(
    m: Match, angle: int, is_place: Callable[[int], bool], is_small: Callable[[int], bool]
) -> list[int]:
    """Return what makes the frequencies of an angle, and what makes the angle of these."""
    nodes: list[int] = []
    for node, way in m.ways(angle, _PASSED):
        read = m.data(node)[:2]
        if m.is_a(node, "CumSum"):
            data = read[:1]
        elif m.factors(node) or m.is_a(node, "Mul"):
            data = [v for v in read if not is_place(v)]
            if len(data) != 1 or len(read) < 2:
                continue
        else:
            continue
        if is_small(angle) and is_small(m.made(node)):  # turns end at 1
            continue
        makers = [n for v in data for n in _making(m, v, is_place)]
        if makers:
            nodes += [*way, node, *makers]
    return nodes


def _making(m: Match, frequency: int, is_place: Callable[[int], bool]) -> list[int]:
    """Return the functions that make a frequency, and the layers whose results they bend."""
    functions, todo = list[int](), Worklist[tuple[int, bool]]((frequency, False))
    for value, bent in todo:
        node = m.maker(value)
        if len(functions) >= FARTHEST:
            break
        if node == ABSENT or m.is_constant(value) or is_place(value):
            continue
        bends = m.op(node) in _CURVES
        if m.factors(node):
            functions += [node] if bent else []
        elif bends or m.op(node) in _LINEAR:
            functions.append(node)
            todo.add((v, bent or bends) for v in m.data(node))
    return functions
