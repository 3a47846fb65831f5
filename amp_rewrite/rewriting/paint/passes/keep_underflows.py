"""Operators that the loss of a small number in 16 bits would change stay float32.

x / (|x| + 1e-12) is NaN for x = 0 in float16. Float32 are: what zero would upset, back to the guard
(guards.py); a reciprocal of a guarded value that is out of range at the guard, and what reads it;
what divides by a constant of which an element loses a share of itself; a product with a factor all
of whose elements are small, or with such a scale of a block of weights.

Evidence: a normalization by variances of 1e-8 in float16: error 854 % without the pass, 0.04 % with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import walk
from amp_rewrite.graph.traits import TABLE, Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import Read, Worklist
from amp_rewrite.values.intervals import interval as i

_FACTORS = (0, 1)
"""Inputs of a product, or of Div, that are factors."""

_PRODUCTS = having(Trait.MULTIPLIES, Trait.CONTRACTS) | {"Div"}
_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN)
_NORMS = having(Trait.ADDS, Trait.SUMS_UP, Trait.CASTS) | {
    *("Clip", "Max", "Mul", "Pow", "ReduceMax", "Relu", "Sqrt")
}  # operators: those of which sums and norms are made.

_POLES: Mapping[str, int] = {
    name: row.pole for name, row in TABLE.items() if row.pole is not None
} | dict.fromkeys(having(Trait.STEEP_AT_ZERO), 0)
"""Operator -> the input whose zero it cannot bear."""

_INPUTS = {name: (pole,) for name, pole in _POLES.items()} | dict.fromkeys(_PRODUCTS, _FACTORS)
_SCALES = {name: row.scales for name, row in TABLE.items() if row.scales}

_SCALE, _VARIANCE = 1, 4
# operators: normalizations, by which input has a scale; that of variances.
_NORMALIZING = {
    "BatchNormalization": (_SCALE, _VARIANCE),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), (_SCALE,)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), (_SCALE,)),
    "SimplifiedLayerNormalization": (_SCALE,),
}
_EPSILON = 1e-5
"""The number that BatchNormalization adds to variances unless an attribute says otherwise."""

_TIGHT = 256.0
"""Bounds up to here are those of bytes, Clip, Sigmoid and the like, which reach them; those of long
sums are far above what the sums ever are."""


@keep("keep-underflows", Reason.CONSTANT_UNDERFLOW, Stage.KEEPING, 100, overrules=True)
def keep_underflows(m: Match, ask: Ask) -> Kept:
    """Unpaint what a number that vanishes in the low type would upset, back to where it begins."""
    allow = ask.painting.allow
    for read in m.reads(allow, _SCALES):
        yield from _scales(m, read)
    for read in m.reads(allow, _NORMALIZING):
        if read.port == _VARIANCE:
            epsilon = m.flat.attributes(read.node).get("epsilon")
            yield from _divides(m, read, _EPSILON if epsilon is None else float(epsilon.value))
        elif _is_faint(m, read.value):
            yield _factor(m, ask, read)
    for read in m.reads(~allow, {"Reciprocal": (0,)}):
        yield from _inverse(m, ask, read)
    for read in m.reads(allow, _INPUTS):
        if m.op(read.node) in _PRODUCTS and _is_faint(m, read.value):
            yield _factor(m, ask, read)
        if read.port == _POLES.get(m.op(read.node)):
            yield from _pole(m, ask, read)


def _vanishing(m: Match) -> float:
    """Return the largest magnitude that rounds to zero."""
    return m.low.smallest_subnormal / 2


def _is_faint(m: Match, value: int) -> bool:
    """Tell whether rounding takes more of all elements than the tolerance of the low type."""
    return 0 < m.facts.magnitude(value) * m.low.rtol < _vanishing(m)


def _factor(m: Match, ask: Ask, read: Read) -> Keep:
    """Return what has a factor of which the low type keeps too little, and makes that."""
    role = "divides" if m.is_a(read.node, "Div") and read.port == 1 else "multiplies"
    fact = _lost(m, m.facts.magnitude(read.value), role)
    return _back(m, ask, read, lambda v: _is_faint(m, v), fact)


def _scales(m: Match, read: Read) -> Iterator[Keep]:
    """Yield what reads weights in blocks, one of which has a scale that is too small."""
    tensor = m.tensor(read.value)
    smallest = None if tensor is None else m.facts.stats(read.value, tensor).smallest_nonzero_abs
    if smallest is not None and smallest * m.low.rtol < _vanishing(m):
        yield _constant(m, read, _lost(m, smallest, "scales a block of weights"))


def _divides(m: Match, read: Read, epsilon: float) -> Iterator[Keep]:
    """Yield a vertex if rounding an element that it divides by changes the sum with epsilon."""
    array, low = m.facts.intervals.array(read.value), m.low
    if array is None or array.dtype != np.float32:
        return
    exact = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.abs(array.astype(low.numpy).astype(np.float64) - exact)
    is_lost = (lost > low.rtol * (np.abs(exact) + epsilon)) & np.isfinite(lost)
    if is_lost.any():
        yield _constant(m, read, _lost(m, float(np.abs(exact[is_lost]).min()), "divides"))


def _inverse(m: Match, ask: Ask, read: Read) -> Iterator[Keep]:
    """Yield what reads the reciprocal, in float32, of a constant if that is out of range."""
    array = m.facts.intervals.array(read.value)
    if array is not None and array.dtype == np.float32 and array.all():
        smallest = float(np.abs(array).min(initial=np.inf))
        yield from _ahead(m, ask, read, 1 / smallest, smallest)


def _pole(m: Match, ask: Ask, read: Read) -> Iterator[Keep]:
    """Yield an operator that zero would upset, if what keeps zero away vanishes."""
    if m.is_a(read.node, "Div", "Reciprocal"):  # those that divide
        yield from _divides(m, read, 0.0)
    guard, vanishing = m.facts.guards.of(read.value), _vanishing(m)
    if guard:
        if guard <= vanishing:
            fact = _lost(m, guard, f"keeps {m.name(read.node)} away from zero")
            yield _back(m, ask, read, lambda v: 0 < m.facts.guards.of(v) <= vanishing, fact)
        yield from _ahead(m, ask, read, _quotient(m, read.node, guard), guard)


def _quotient(m: Match, node: int, guard: float) -> float:
    """Return what the result of a node reaches at the guard; 0 for what does not divide."""
    if m.is_a(node, "Reciprocal"):
        return 1 / guard
    if m.is_a(node, "Div"):
        dividend, divisor = m.read(node)
        bound = m.facts.intervals[dividend]
        is_tight = bound.magnitude <= _TIGHT and not _is_part(m, dividend, divisor)
        return (bound.magnitude if is_tight else bound.away) / guard
    exponent = m.facts.intervals[m.read(node)[1]] if m.is_a(node, "Pow") else i.ANY
    return i.raised(guard, exponent.high) if exponent.is_point and exponent.high < 0 else 0.0


def _is_part(m: Match, dividend: int, divisor: int) -> bool:
    """Tell whether a divisor is a norm or a sum of its dividend, so that the quotient is small.

    x / (sum(x) + eps) never comes near 1 / eps.
    """
    todo = Worklist(m.source(divisor, _HANDING_ON, first=True))
    for value in todo:
        read = m.read(m.maker(value)) if m.op(m.maker(value)) in _NORMS else []
        todo.add(m.source(v, _HANDING_ON, first=True) for v in read if v != ABSENT)
    return m.source(dividend, _HANDING_ON, first=True) in todo.seen


def _back(m: Match, ask: Ask, read: Read, concerns: Callable[[int], bool], fact: str) -> Keep:
    """Return a node and what computes the values that concern it, back to where they begin."""
    nodes, todo = [read.node], Worklist(read.value)
    for value in todo:
        node = m.maker(value)
        if node != ABSENT:
            nodes.append(node)
            todo.add(v for v in m.read(node) if v != ABSENT and concerns(v))
    read_by = ((n, v) for n in nodes for v in reversed(m.read(n)))
    held = {n: v for n, v in read_by if m.tensor(v) is not None and concerns(v)}
    origin = next((n for n in reversed(nodes) if n in held), nodes[-1])
    is_allow, vertices_of = ask.painting.is_allow, m.graph.vertices_of
    first, constant = next(filter(is_allow, vertices_of(origin)), None), held.get(origin)
    named = "" if constant is None else f"constant {m.flat.value_names[constant]} = "
    kept = [v for n in nodes for v in vertices_of(n) if is_allow(v)]
    return Keep(named + fact, (), kept, first, None if first is None else constant)


def _ahead(m: Match, ask: Ask, read: Read, reached: float, divisor: float) -> Iterator[Keep]:
    """Yield a vertex whose result is out of range, and what reads that, as far as it is moved."""

    def behind(vertex: int) -> list[int]:
        hands_on = vertex == read.vertex or m.op(m.graph.nodes[vertex]) in _HANDING_ON
        return m.graph.successors(vertex) if hands_on else []

    if reached >= m.low.overflow:
        detail = f"{m.name(read.node)} reaches {reached:.4g} where it divides by {divisor:.3g}"
        low = filter(ask.painting.is_allow, walk([read.vertex], behind))
        yield Keep(detail, (), [read.vertex, *low], read.vertex)


def _constant(m: Match, read: Read, fact: str) -> Keep:
    """Return a vertex that reads a constant of which too little is kept."""
    detail = f"constant {m.flat.value_names[read.value]} = {fact}"
    return Keep(detail, (), [read.vertex], constant=read.value)


def _lost(m: Match, magnitude: float, role: str) -> str:
    """Return what becomes of a small number, and what it does."""
    error = _vanishing(m) / magnitude
    fate = "rounds to zero" if error >= 1 else f"is rounded by up to {error:.0%}"
    return f"{magnitude:.3g} {fate} in {m.low.name}, and {role}"
