"""The argument of a logarithm of small numbers stays float32 with it.

A logarithm turns relative errors into absolute ones. Small numbers lose their digits or vanish, as
in log(max(mel, 1e-10)); differences cancel, as in 1 - p. All is float32 back to where an absolute
error is what counts, or where numbers are as large as the type can keep; so is the transform of
sound in integers of 16 bits, which leaves the range of float16.

Evidence: oww_melspec in float16: error 0.04 % of the output's peak without the pass, 0 with it;
log(p) of small p up to 0.2 (tests/conformance/test_logarithms.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, SIGNED, Demanded, Worklist
from amp_rewrite.values.sum_lengths import count_terms

_LOUDEST = 32767.0
"""The largest sample of sound of 16 bits."""

_FRAME, _FILTER = 0.999, 3.0
"""Between which sums of magnitudes weights cut a signal into frames, or filter it: what is in the
pass band stays as loud as it is."""

# operators: functions whose results are never zero, so that nobody guards a logarithm of them.
_POSITIVE = ("Exp", "Sigmoid", "Softmax", "Softplus")

# operators: those behind which a relative error of an operand is one of the result.
_ARITHMETIC = (
    SIGNED
    | ADDED
    | having(Trait.SUMS_UP, Trait.AVERAGES, Trait.CONTRACTS)
    | {
        "Clip",
        "Div",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Pow",
        "Reciprocal",
        "ReduceProd",
        "Relu",
        "Sqrt",
    }
)

_MOVES = having(Trait.MOVES)


@keep("keep-logarithms", Reason.DEMAND, Stage.KEEPING, 90)
def keep_logarithms(m: Match, _: Ask) -> Kept:
    """Unpaint logarithms that the low type would spoil, and what computes their arguments."""
    arguments = {node: m.read(node)[0] for node in m.nodes("Log", "ReduceLogSum")}
    for node, argument in arguments.items():
        if m.graph.is_float32(argument):
            yield from _spoilt(m, node, argument)
    if may_leave_range(m.low):
        guarded = [v for v in arguments.values() if _guard(m, v)]
        squares = m.behind(*guarded, enters=lambda n: m.op(n) in _ARITHMETIC or None)
        for node in squares.nodes:
            if m.exponent(node) == 2 or m.is_a(node, "ReduceL2", "ReduceSumSquare"):
                yield from _loud(m, m.read(node)[0])


def _spoilt(m: Match, logarithm: int, argument: int) -> Iterator[Keep]:
    """Yield a logarithm, and what computes its argument, unless the low type keeps that."""
    guard = _guard(m, argument)
    faint = _behind(m, argument, guard, lambda n, size: _is_lost(m, n, guard, size))
    detail, concerned = _vanishing(m, argument, guard), list[int]()
    behind = _behind(m, argument, guard, lambda node, _: not m.has(node, Trait.CONTRACTS))
    if any(_cancels(m, node, guard) for node in behind):
        concerned = behind
        detail = detail or f"a difference of numbers that {m.low.name} holds too roughly"
    detail = detail or ("" if guard else _hidden(m, argument))
    if detail:
        origin = m.graph.vertices_of(logarithm)[0]
        nodes = [logarithm, *faint, *concerned]
        yield Keep(f"logarithm {m.name(logarithm)}: {detail}", nodes, because=origin)


def _guard(m: Match, argument: int) -> float:
    """Return what keeps an argument away from zero; 0 for inputs, of whatever range."""
    return 0.0 if m.maker(argument) == ABSENT else m.facts.guards.of(argument)


def _vanishing(m: Match, argument: int, guard: float) -> str:
    """Return how small numbers vanish from an argument, "" if they do not."""
    low = m.low
    if guard:
        kept = f"{low.name} keeps too little of them"
        return f"numbers down to {guard:.3g} count, {kept}" if _is_faint(low, guard) else ""
    source = m.source(argument, _MOVES, first=True)
    if may_leave_range(low) and m.is_a(m.maker(source), *_POSITIVE):
        return f"what is never zero may be so in {low.name}"
    return ""


def _hidden(m: Match, argument: int) -> str:
    """Return how numbers vanish of which an argument without a guard is a sum or product."""

    def enters(node: int) -> bool | None:
        if m.op(node) not in _ARITHMETIC or _is_positive(m, m.made(node)):
            return None
        return not _is_layer(m, node)

    low, intervals = m.low.name, m.facts.intervals
    if not may_leave_range(m.low) or intervals[argument].high <= 0:
        return ""
    region = m.behind(argument, enters=enters, most=FARTHEST)
    positive = {v for v in region.ends if _is_positive(m, v)}
    if positive and all(intervals[v].low >= 0 for v in region.ends - positive):
        return f"a sum or product that is never zero may be so in {low}"
    held = {v for n in region.nodes for v in m.data(n) if _is_sparse(m, v)}
    named = ", ".join(sorted(m.flat.value_names[v] for v in held))
    return f"{low} loses numbers of {named}, the only ones of some elements" if held else ""


def _is_positive(m: Match, value: int) -> bool:
    """Tell whether a function gives a value that is never zero, a power of a constant included."""
    node = m.maker(value)
    return m.is_a(node, *_POSITIVE) or (m.is_a(node, "Pow") and m.is_constant(m.read(node)[0]))


def _is_layer(m: Match, node: int) -> bool:
    """Tell whether a node is a product with weights of either sign, so that it may cancel."""
    weights = [v for v in m.factors(node) if m.is_constant(v)]
    return any((i := m.facts.intervals[v]).low < 0 < i.high for v in weights)


def _is_sparse(m: Match, value: int) -> bool:
    """Tell whether a constant is partly zero in the low type, and no element has another sign."""
    tensor, interval = m.tensor(value), m.facts.intervals[value]
    if tensor is None or (interval.low < 0 < interval.high):
        return tensor is None and _is_positive(m, value) and m.is_fixed(value)
    return m.facts.stats(value, tensor).flushed_to_zero(m.low) > 0


def _is_lost(m: Match, node: int, guard: float, size: float) -> bool:
    """Tell whether the low type loses results of a size; a layer, if nothing guards, loses none."""
    return _is_faint(m.low, size) and (guard > 0 or not _is_layer(m, node))


def _is_faint(low: DType, guard: float) -> bool:
    """Tell whether rounding takes more of a number than the tolerance of the low type."""
    return guard * low.rtol < low.smallest_subnormal / 2


def _behind(
    m: Match, argument: int, guard: float, concerns: Callable[[int, float], bool]
) -> list[int]:
    """Return the nodes that compute an argument, back to where absolute errors count."""
    nodes, todo, size_of = list[int](), Worklist(argument), {argument: guard}
    for value in todo:
        node, size = m.maker(value), size_of[value]
        if node == ABSENT or m.tensor(value) is not None or not concerns(node, size):
            continue
        nodes.append(node)
        if m.op(node) in _ARITHMETIC:
            # Operands have the size whose power is that of the result.
            power = 2.0 if m.is_a(node, "ReduceSumSquare") else m.exponent(node)
            before = size ** (1 / power) if power > 0 else size
            size_of |= dict.fromkeys(todo.add(m.data(node)), before)
    return nodes


def _cancels(m: Match, node: int, guard: float) -> bool:
    """Tell whether of a difference of bounded numbers not even a guard's size is exact."""
    if not m.is_a(node, "Sub", "Add"):
        return False
    one, other = (m.facts.intervals[value] for value in m.read(node))
    opposed = one.low >= 0 >= other.high or other.low >= 0 >= one.high
    if m.is_a(node, "Add") and not opposed:
        return False
    smallest, largest = sorted(m.facts.magnitude(value) for value in m.read(node))
    return 0 < smallest <= largest < math.inf and smallest * m.low.epsilon / 2 >= guard


def _loud(m: Match, value: int) -> Iterator[Keep]:
    """Yield what computes a value if it is the transform of a loud signal, frames included."""
    heard = _Loudness(m)
    region = m.behind(value, enters=heard.enters, most=FARTHEST).nodes
    largest = {node: heard[m.made(node)] or 0.0 for node in region}
    loud = [node for node in region if largest[node] >= m.low.overflow]
    products = [n for n in region if largest[n] and m.has(n, Trait.CONTRACTS)]
    first = next((n for n in products if largest[n] >= m.low.overflow), ABSENT)
    if first != ABSENT:
        name = m.flat.value_names[m.made(first)]
        detail = f"{name} may reach {largest[first]:.2g} if the input is sound as 16-bit integers"
        limit = f"{m.low.name} ends at {m.low.max:.6g}"
        yield Keep(f"{detail}; {limit}", [*loud, *products], reason=Reason.LIKELY_OVERFLOW)


class _Loudness(Demanded[float]):
    """The largest numbers that sums and products make of loud inputs of unknown range, or 0."""

    most = FARTHEST

    def __init__(self, m: Match) -> None:
        super().__init__()
        self._m = m

    def enters(self, node: int) -> bool | None:
        """Tell whether a node is linear in a signal: it moves, adds or weighs it."""
        m = self._m
        weighs = m.is_a(node, "Mul", "Div") or m.has(node, Trait.CONTRACTS)
        return (m.op(node) in SIGNED | ADDED or weighs) or None

    def operands(self, value: int) -> Sequence[int]:
        """Return the signals of which a value is made."""
        m, node = self._m, self._m.maker(value)
        if m.has(node, Trait.CASTS):
            return m.read(node)[:1]
        signals = [v for v in m.data(node) if not m.is_fixed(v)] if self.enters(node) else []
        return () if m.is_a(node, "Div") and signals != m.read(node)[:1] else signals

    def transfer(self, value: int, operands: Sequence[float | None]) -> float:
        """Return the largest number of a value."""
        m, node, facts = self._m, self._m.maker(value), self._m.facts
        if not operands:
            is_open = m.flat.is_input(value) and not facts.intervals[value].is_bounded
            return _LOUDEST if is_open else 0.0
        loudest = [part or 0.0 for part in operands]
        if m.op(node) in ADDED:
            return math.fsum(loudest)
        fixed = [v for v in m.data(node) if m.is_fixed(v)]
        if not fixed or len(loudest) > 1:
            return max(loudest) if m.op(node) in SIGNED else 0.0
        if m.has(node, Trait.CONTRACTS):
            gain = (count_terms(m.flat, node) or 0) * _mean_size(m, fixed[0])
            return loudest[0] * (1 if _FRAME < gain < _FILTER else gain)
        size = facts.magnitude(fixed[0])
        if m.is_a(node, "Div"):
            size = 1 / (size or math.inf)
        return loudest[0] * size if math.isfinite(size) else 0.0


def _mean_size(m: Match, weights: int) -> float:
    """Return the mean magnitude of weights, be they computed of constants."""
    sample = m.facts.estimates.sample(weights) if m.tensor(weights) is not None else None
    if sample is not None:
        return float(np.abs(sample).mean())
    estimate = m.facts.estimates[weights]
    return 0.0 if estimate is None else estimate.size
