"""What reads a float32 sum of no known bound stays float32 with it.

Operators that add up many elements stay float32, for the sum may be larger than the low type holds;
a Cast straight behind it would still make it infinite. A node of a graph network with 30,000
edges sums up 30,000 messages; a spectrum of 16-bit samples reaches millions. So what follows is
float32, too, up to where something normalises the sum: a quotient, a norm, a bounded function.

Evidence: a graph node with 30,000 edges in float16: NaN without the pass, right with it
(tests/conformance/test_demands_and_sums.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.dtypes import may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.sizes import product_of
from amp_rewrite.graph.step_part import part_in
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.intervals.summing import length_along, reduced_length
from amp_rewrite.values.sum_lengths import count_terms

LONGEST = 1024
"""Elements of the longest sum of data that layers made; they are seldom above 64."""

LONGEST_SPECTRUM = 64
"""Elements of the longest sum of a spectrum: samples that nobody scaled go up to 32,768."""

# operators: what may add up updates.
_SCATTERS = ("ScatterElements", "ScatterND")
_SPECTRA = ("DFT", "STFT")  # operators: what adds up samples.


class KeepSums(PaintPass):
    """Unpaint what is computed of a float32 sum that nothing bounds."""

    name = "keep-sums"
    places = (
        Place(Stage.KEEPING, 50, "what reads a float32 sum that nothing bounds"),
        Place(Stage.JUDGING, 30),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; nodes that the user allows are left alone."""
        if context.lists.is_unsafe or not may_leave_range(context.low):
            return painting
        graph, flat = context.type_graph, context.type_graph.flat
        summing = [_sums(called) and called not in flat.functions for called in flat.operators]
        marks: dict[int, Mark] = {}
        for node in [n for n, o in enumerate(flat.operator) if summing[o]] if any(summing) else ():
            value = flat.outputs_of(node)[0]
            vertex = graph.source[value]
            if vertex == ABSENT or painting.is_allow(vertex) or not _is_open(context, node, value):
                continue
            detail = f"{flat.value_names[value]} is a sum that nothing bounds"
            mark = Mark(Color.NONE, Reason.UNBOUNDED_SUM, vertex, detail)
            for reached in _behind(context, value):
                if painting.is_allow(reached) and not context.is_allowed(reached):
                    marks.setdefault(reached, mark)
        return painting.with_marks(marks)


def _sums(called: Operator) -> bool:
    """Tell whether an operator may add up any number of elements."""
    named = called.domain == "" and called.op_type in (*_SCATTERS, *_SPECTRA)
    return named or has(called, Trait.ACCUMULATES)


def _is_open(context: PaintContext, node: int, value: int) -> bool:
    """Tell whether a sum may leave the range: it is long, or of unknown length, and unbounded."""
    flat, intervals = context.type_graph.flat, context.values.intervals
    if _is_part(context, node) or not _is_wide(context, value):
        return False
    called, op = flat.called(node), Operation(intervals, node, flat.inputs_of(node))
    if called.op_type in _SCATTERS and op.attribute("reduction", "none") != "add":
        return False
    longest = LONGEST_SPECTRUM if called.op_type in _SPECTRA else LONGEST
    length = _length(op, called.op_type) or count_terms(flat, node)
    return length is None or length > longest


def _is_part(context: PaintContext, node: int) -> bool:
    """Tell whether a node is a part of a training step, which has loss scaling for its sums."""
    return part_in(context.type_graph.flat.metadata_of(node)) is not None


def _length(op: Operation, op_type: str) -> float | None:
    """Return how many elements are added up at most, or None if shapes do not tell."""
    match op_type:
        case "CumSum":
            return length_along(op, op.array(1))
        case "ScatterElements" | "ScatterND":
            indices = op.shape(1)
            lengths = None if indices is None else indices[: -1 if op_type == "ScatterND" else None]
            return product_of(lengths)
        case "DFT":
            shape = op.shape(0)
            lengths = None if shape is None else shape[1:-1]
            return None if not lengths or None in lengths else max(d or 0 for d in lengths)
        case "STFT":
            window, frame = op.shape(2), op.array(3)
            return float(frame.max()) if frame is not None else window[0] if window else None
        case _:
            return reduced_length(op)


def _behind(context: PaintContext, value: int) -> Iterator[int]:
    """Yield the vertices that read a value, or what was computed of it and may be as large."""
    graph, flat = context.type_graph, context.type_graph.flat
    stack, seen = [value], {value}
    while stack:
        current = stack.pop()
        for slot in flat.uses(current):
            node, vertex = flat.reader(slot), graph.reads[slot]
            if (
                vertex == ABSENT
                or has(flat.called(node), Trait.COMPARES)
                or _is_part(context, node)
            ):
                continue
            yield vertex
            if _hands_on(context, node):
                new = {v for v in flat.outputs_of(node) if graph.is_float32(v)} - seen
                seen |= new
                stack += [v for v in new if _is_wide(context, v)]


def _hands_on(context: PaintContext, node: int) -> bool:
    """Tell whether what a node makes is as large as what it reads, whatever it reads besides."""
    graph, flat = context.type_graph, context.type_graph.flat
    called = flat.called(node)
    if has(called, Trait.CONTRACTS):
        return any(constant_tensor(graph, v) is not None for v in flat.inputs_of(node)[:2])
    return has(called, Trait.MOVES, Trait.HOMOGENEOUS) and not has(called, Trait.JUMPS)


def _is_wide(context: PaintContext, value: int) -> bool:
    return context.values.intervals[value].magnitude >= context.low.overflow
