"""Masks: numbers that only serve as "lower than everything" in front of a Softmax.

A mask is 0 or a fill, such as -1e9, that is added to scores. The model computes it in many
spellings, or the caller gives it. What is known of a value follows from that of its operands.

Where all that reads a mask only asks which scores lie above the others, elements out of range may
end where the low type does, for minus infinity makes a row that is masked as a whole NaN. Where
the mask is added to something they end at half of that: -65504 + -20 is minus infinity again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.constants import constant_tensor, filled_tensor, read_constants
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, MAIN, Array
from amp_rewrite.graph.reach import data_of, walk
from amp_rewrite.graph.traits import TABLE, Trait, having, is_one, operator, row_of
from amp_rewrite.rewriting.paint.match import ADDED, SIGNED, Chains, Demanded, Worklist
from amp_rewrite.values.counts.find_counts import LOWEST
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.propagate import Intervals
from amp_rewrite.values.sum_lengths import count_terms

MASKING = having(Trait.MOVES, Trait.CASTS, Trait.ADDS) | {"Mul"}
"""Operators through which a mask constant reaches those that order."""

# operators: those that add up elements along an axis.
_TOTALS = frozenset({"CumSum", "ReduceSum"})
_SUMS = ADDED | _TOTALS
# operators: the largest of some elements.
_LARGEST = frozenset({"GlobalMaxPool", "Max", "MaxPool", "ReduceMax", "TopK"})
# operators: others that hand on a mask's elements, or sums of them.
_HANDING_ON = _SUMS | {"Clip", "Div", "Min", "Neg", "ReduceMin"}

CARRYING = MASKING | _HANDING_ON | _LARGEST
"""Operators whose results have the elements of a mask, or sums of them."""

# operators: the arithmetic that masks are made of; no layer is among them.
_ARITHMETIC = (
    CARRYING | SIGNED | having(Trait.HOLDS) | {"Log", "Mean", "ScatterElements", "ScatterND"}
) - having(Trait.SEQUENCE, Trait.OPAQUE)
# operators: those whose results may be larger than what they read.
_UNBOUNDED = frozenset({"Div", "Log"})
# operators: those behind which what the caller gives is no mask any more.
_SCALING = _TOTALS | {"Clip", "Div", "Log", "Mean", "Mul", "Sub"}
# operators: those that leave each row of a mask what it is, or cut it; zeros times data are zeros.
_KEEPING_ROWS = (
    *("Add", "Cast", "CastLike", "Expand", "Gather", "Identity", "Mul", "Reshape", "Slice"),
    *("Squeeze", "Tile", "Unsqueeze"),
)

_PASSED = (CARRYING | having(Trait.HOLDS, Trait.SUBGRAPHS)) - having(Trait.LOOPS)
_ORDERING = having(Trait.ORDERS)
# operators: those that make shares of what they read; those that contain a Softmax.
_SHARING = frozenset({"LogSoftmax", "ReduceLogSumExp", "Softmax"})
_ATTENDING = frozenset(name for name, row in TABLE.items() if row.masks)

F = TypeVar("F")

_MOST_NODES = 200
"""How many nodes make a mask at most; what takes more is no mask."""


class Fills(NamedTuple):
    """The fills of a value.

    Attributes:
        least: The smallest magnitude of one.
        is_open: Whether every row, along the last axis, has an element without one: a causal mask
            in the file has, a padding mask that the model computes may have none.
        is_given: Whether the caller gives them all, if there are any: an input may be a mask.
        has_given: Whether the caller gives some of them.
        adds_given: Whether masks were added to each other, and the caller gives some of them.
    """

    least: float
    is_open: bool
    is_given: bool = False
    has_given: bool = False
    adds_given: bool = False


class Absorbed(NamedTuple):
    """Which elements of a value count for nothing.

    Attributes:
        beyond: Those from this magnitude on; half of the smallest fill, for scores are added.
        either_sign: Whether positive ones count for nothing as well: a mask that is subtracted.
    """

    beyond: float
    either_sign: bool


class _Made(Demanded[F]):
    """Results of arithmetic on inputs and constants."""

    def __init__(
        self, chains: Chains, intervals: Intervals, inputs: Mapping[int, Interval]
    ) -> None:
        super().__init__()
        self._m, self._graph = chains, chains.graph
        self._intervals, self._inputs = intervals, inputs

    def operands(self, value: int) -> list[int]:
        """Return the float32 values of which a value is made; a constant is made of nothing."""
        node = self._m.maker(value)
        data = data_of(self._m.flat, node) if self._m.op(node) in _ARITHMETIC else ()
        return [v for v in data if self._graph.is_float32(v)]


class _Reaches(_Made["float | None"]):
    """The bound of all magnitudes; a factor that is not known counts as 1."""

    most, saturated = _MOST_NODES, dict[int, float]()

    def transfer(self, value: int, operands: Sequence[float | None]) -> float | None:
        m, node = self._m, self._m.maker(value)
        tensor = None if operands else filled_tensor(self._graph, value)
        if tensor is not None:
            finite, _ = _magnitudes(tensor.numpy())
            return min(float(finite.max(initial=0.0)), self.saturated.get(value, math.inf))
        reach = [part for part in operands if part is not None]
        if len(reach) < len(operands):
            return None
        if not reach:  # an input, a layer, or what is cast from integers and truth values
            is_made = value in m.flat.main.inputs or m.op(node) in _ARITHMETIC
            return self._intervals[value].magnitude if is_made else None
        most = math.inf if m.op(node) in _UNBOUNDED else max(reach)
        if m.is_a(node, "Mul"):
            # What is not bounded multiplies a fill by no more than 1.
            bounded = [r for r in reach if math.isfinite(r)]
            most = math.prod(bounded if max(bounded, default=0) >= -LOWEST else reach)
        elif m.op(node) in _SUMS:
            terms = count_terms(m.flat, node) or math.inf if m.op(node) in _TOTALS else 1
            most = sum(reach) * terms
        return min(most, self._intervals[value].magnitude)


class _FillsOf(_Made["Fills | None"]):
    """The fills of values; None for one without, as far as is known."""

    def __getitem__(self, value: int) -> Fills | None:
        """Return the fills of a value, or None."""
        return super().__getitem__(value) if value in self._reached else None

    @cached_property
    def _reached(self) -> set[int]:
        """The values that fills may reach: most models have few, or none."""
        m, flat = self._m, self._m.flat
        first = [v for v in read_constants(self._graph) if self._intervals[v].magnitude >= -LOWEST]
        first += [v for node in flat.nodes_of("ConstantOfShape") for v in flat.outputs_of(node)]
        todo = Worklist(*first, *(v for v in flat.main.inputs if self._given(v) is not None))
        for value in todo:
            made = (n for n in m.readers(value) if m.op(n) in _ARITHMETIC)
            todo.add(v for node in made for v in flat.outputs_of(node))
        return todo.seen

    def transfer(self, value: int, operands: Sequence[Fills | None]) -> Fills | None:
        m, node = self._m, self._m.maker(value)
        if not operands:
            tensor = filled_tensor(self._graph, value)
            return self._given(value) if tensor is None else _fills(tensor.numpy())
        scales = m.op(node) in _SCALING
        parts = [f for f in operands if f is not None and not (scales and f.is_given)]
        if not parts or m.is_a(node, "Log"):
            return None
        stays_open = len(parts) == 1 and parts[0].is_open and m.is_a(node, *_KEEPING_ROWS)
        has_given = any(f.has_given for f in parts)
        adds = m.op(node) in _TOTALS or (len(parts) > 1 and m.op(node) in ADDED)
        return Fills(
            min(f.least for f in parts),
            stays_open or self._is_triangle(node),
            all(f.is_given for f in parts),
            has_given,
            (has_given and adds) or any(f.adds_given for f in parts),
        )

    def _given(self, value: int) -> Fills | None:
        """Return the fills of an input of the model that is added, and nothing else."""
        m, input_range = self._m, self._inputs.get(value)
        if value not in m.flat.main.inputs or not self._graph.is_float32(value):
            return None
        if input_range is not None and input_range.magnitude < -LOWEST:
            return None
        is_mask = {m.op(node) for node in m.readers(value)} <= _ARITHMETIC - _SCALING
        return Fills(FLOAT32.max, False, is_given=True, has_given=True) if is_mask else None

    def _is_triangle(self, node: int) -> bool:
        """Tell whether a node leaves fills above the diagonal alone."""
        m = self._m
        if not m.is_a(node, "Trilu") or len(m.read(node)) < 2:
            return False
        upper, shift = m.flat.attributes(node).get("upper"), m.numbers(m.read(node)[1])
        return (upper is None or upper.value != 0) and shift is not None and shift.min() >= 1


class Masks:
    """The masks of a model, and what becomes of them."""

    def __init__(
        self,
        chains: Chains,
        intervals: Intervals,
        inputs: Mapping[int, Interval],
        saturated: Mapping[int, float] | None = None,
    ) -> None:
        """Know nothing yet; `saturated` are constants -> where they end in float32 as well."""
        self._m, self._graph, self._low = chains, chains.graph, chains.low
        self._known = chains, intervals, inputs
        self.fills, self.reach = _FillsOf(*self._known), _Reaches(*self._known)
        self.reach.saturated = dict(saturated or {})
        self._ends: dict[int, bool] = {}

    def ending(self, saturated: Mapping[int, float]) -> Masks:
        """Return the masks where some constants end in float32 as well."""
        return Masks(*self._known, saturated) if saturated else self

    def ends(self, vertex: int) -> bool:
        """Tell whether everything that a vertex computes ends in an ordering operator."""
        if vertex not in self._ends:
            self._ends[vertex] = ends_in_ordering(self._graph, vertex)
        return self._ends[vertex]

    def makers(self, value: int) -> list[int]:
        """Return the nodes that compute a value and have fills in their results, from it on."""
        todo, nodes = Worklist(value), list[int]()
        for current in todo:
            node = self._m.maker(current)
            if node != ABSENT and self.fills[current] is not None:
                nodes.append(node)
                todo.add(self.fills.operands(current))
        return nodes

    def limit(self, value: int, readers: Sequence[int]) -> float:
        """Return the magnitude at which elements end in front of a Cast that some vertices read.

        It is 0 if no element may be replaced, or none is out of range.
        """
        graph, low = self._graph, self._low
        if low is FLOAT32 or not graph.is_float32(value) or not self._only_orders(value, readers):
            return 0.0
        fills, reach = self.fills[value], self.reach[value]
        is_constant = constant_tensor(graph, value) is not None
        if is_constant or reach is None or reach < low.overflow:
            return 0.0
        sums = {node for v in readers for node in sums_behind(graph, v)}
        has_fills = fills is not None and not fills.is_given
        if not (has_fills or (sums and all_end_in_ordering(graph, value, readers, _SHARING))):
            return 0.0
        return low.max / 2 if sums else low.max

    def _only_orders(self, value: int, readers: Sequence[int]) -> bool:
        """Tell whether some vertices, and nothing opaque, read a value, and only order it."""
        is_known = bool(readers) and ABSENT not in readers
        return is_known and all_end_in_ordering(self._graph, value, readers)

    def absorbed(self, values: Iterable[int]) -> dict[int, Absorbed]:
        """Return, for values with fills out of range that nothing but orderings reads, which.

        Scores and a mask have both signs, so that positive elements of them are no fills. A mask
        alone may be positive, before it is subtracted.
        """
        fills_of: dict[int, Absorbed] = {}
        for value in values:
            fills = self.fills[value]
            if fills is None or fills.least < self._low.overflow or self._m.flat.is_output(value):
                continue
            if self._only_orders(value, self._graph.readers(value)):
                fills_of[value] = Absorbed(fills.least / 2, self.reach[value] is not None)
        return fills_of


def _fills(elements: Array) -> Fills | None:
    """Return the fills among the elements of a constant; infinities stay what they are."""
    finite, masked = _magnitudes(elements)
    least = float(finite[finite >= -LOWEST].min(initial=np.inf))
    is_open = elements.ndim > 0 and not bool(masked.all(axis=-1).any())
    return Fills(least, is_open) if least < np.inf else None


def _magnitudes(elements: Array) -> tuple[Array, Array]:
    """Return the magnitudes that are finite, and a mask of those that are fills, in their shape."""
    magnitudes = np.abs(elements.astype(np.float32))
    return magnitudes[np.isfinite(magnitudes)], magnitudes >= -LOWEST


def all_end_in_ordering(
    graph: TypeGraph, value: int, readers: Iterable[int], ordering: frozenset[str] = _ORDERING
) -> bool:
    """Tell whether all that some vertices compute of a value ends in an ordering operator."""
    return all(ends_in_ordering(graph, v, value, ordering) for v in dict.fromkeys(readers))


def ends_in_ordering(
    graph: TypeGraph, vertex: int, value: int = ABSENT, ordering: frozenset[str] = _ORDERING
) -> bool:
    """Tell whether everything that a vertex computes ends in an ordering operator."""
    called = _op(graph, vertex)
    if called in _ATTENDING:
        return value != ABSENT and enters_as_mask(graph, vertex, lambda v: v == value)
    if called != "Exp" and called not in ordering and called not in _PASSED:
        return False
    todo = Worklist(vertex)
    for current in todo:
        called, consumers = _op(graph, current), graph.successors(current)
        is_shift = called == "Exp" and _shifted(graph, graph.nodes[current]) != ABSENT
        if called in ordering or is_shift:
            continue
        if called not in _PASSED or not consumers or _is_output(graph, current):
            return False
        if not all(_hands_on(graph, current, consumer) for consumer in consumers):
            return False
        todo.add(v for v in consumers if _op(graph, v) not in _ATTENDING)
    return True


def softmaxes(m: Chains) -> Iterator[tuple[int, int]]:
    """Yield the nodes that make shares of scores, and the scores.

    That is the Exp of a Softmax that is written out, as Sub of the largest, Exp, sum and quotient.
    """
    yield from ((node, m.read(node)[0]) for node in m.nodes("LogSoftmax", "Softmax"))
    shifted = ((node, _shifted(m.graph, node)) for node in m.nodes("Exp"))
    yield from (pair for pair in shifted if pair[1] != ABSENT)


def _shifted(graph: TypeGraph, exponential: int) -> int:
    """Return the scores of which an Exp gets what they are less than their largest, or ABSENT."""
    flat = graph.flat
    difference = flat.producer[flat.inputs_of(exponential)[0]]
    if difference == ABSENT or not is_one(flat.called(difference), "Sub"):
        return ABSENT
    scores, largest = flat.inputs_of(difference)
    maximum = flat.producer[largest]
    is_largest = maximum != ABSENT and is_one(flat.called(maximum), "ReduceMax")
    return scores if is_largest and flat.inputs_of(maximum)[0] == scores else ABSENT


def enters_as_mask(graph: TypeGraph, vertex: int, comes: Callable[[int], bool]) -> bool:
    """Tell whether a vertex reads what `comes` as the mask of an attention and nowhere else."""
    masks = row_of(graph.operator_of(vertex)).masks
    indices = _indices(graph, vertex, comes) if masks else []
    return bool(indices) and all(index in masks for index in indices)


def _hands_on(graph: TypeGraph, vertex: int, consumer: int) -> bool:
    """Tell whether a consumer reads what a vertex makes in such a way that it stays a mask."""

    def comes(value: int) -> bool:
        return graph.source[value] == vertex

    if _op(graph, consumer) in _ATTENDING:
        return enters_as_mask(graph, consumer, comes)
    # operators: those that hand on a mask if it is their first input.
    return _op(graph, consumer) not in ("Clip", "Div") or not any(_indices(graph, consumer, comes))


def _indices(graph: TypeGraph, vertex: int, comes: Callable[[int], bool]) -> list[int]:
    """Return at which inputs a vertex reads values."""
    flat, node = graph.flat, graph.nodes[vertex]
    slots = range(flat.input_start[node], flat.input_start[node + 1])
    mine = (slot for slot in slots if graph.reads[slot] == vertex)
    return [flat.index(slot) for slot in mine if comes(flat.inputs[slot])]


def _is_output(graph: TypeGraph, vertex: int) -> bool:
    """Tell whether a vertex writes an output of the model; that of a branch is its owner's."""
    flat = graph.flat
    written = flat.outputs_of(graph.nodes[vertex])
    return any(flat.is_output(value) and flat.home[value] == MAIN for value in written)


def sums_behind(graph: TypeGraph, vertex: int) -> set[int]:
    """Return the vertices that add something to a mask on its way to the ordering operators.

    An attention adds it to its scores.
    """
    behind = walk([vertex], graph.successors, graph.called(CARRYING | _ATTENDING))
    return {v for v in behind if _op(graph, v) in _SUMS | _ATTENDING}


def _op(graph: TypeGraph, vertex: int) -> str:
    return operator(graph.operator_of(vertex))
