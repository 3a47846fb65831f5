"""Readers of a float32 sum of no known bound stay float32 with it.

A node of a graph network sums up 30,000 messages; a Cast after the sum would make it infinite. So
what follows is float32, up to where something normalises the sum. The same holds of an exponential
that a product adds up in front of a quotient or logarithm: exp(11.1) is out of range.

Evidence: a graph node with 30,000 edges in float16: NaN without the pass, right with it
(tests/conformance/test_demands_and_sums.py); log(sum(exp(x))) whose sum is a product with ones:
infinite from 11.1 on without it, 0.04 % of the output's peak with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep
from amp_rewrite.rewriting.paint.masks import softmaxes
from amp_rewrite.rewriting.paint.match import PRODUCTS, Worklist
from amp_rewrite.values.intervals.operation import Operation
from amp_rewrite.values.sum_lengths import count_terms

LONGEST = 1024
"""Elements of the longest sum of data that layers made; they are seldom above 64."""

LONGEST_SPECTRUM = 64
"""Elements of the longest sum of a spectrum: samples that nobody scaled go up to 32,768."""

# operators: what may add up updates.
_SCATTERS = ("ScatterElements", "ScatterND")
_SPECTRA = ("DFT", "STFT")  # operators: what adds up samples.
# those that may add up any number of elements.
_SUMS = having(Trait.ACCUMULATES) | {*_SCATTERS, *_SPECTRA}
# those whose result is as large as what they read, whatever they read besides.
_HANDING_ON = having(Trait.MOVES, Trait.HOMOGENEOUS) - having(Trait.JUMPS, Trait.CONTRACTS)
# operators: those behind which the size of what they read is gone, so that nothing keeps it small.
_NORMALISING = frozenset({"Div", "Log", "Reciprocal", "ReduceLogSum"})


@keep("keep-sums", Reason.UNBOUNDED_SUM, Stage.KEEPING, 50, needs=Need.SAFETY | Need.RANGE)
def keep_sums(m: Match, ask: Ask) -> Kept:
    """Unpaint what is computed of a float32 sum that nothing bounds."""
    for node in m.nodes(*_SUMS):
        vertex, value = m.graph.source[m.made(node)], m.made(node)
        if vertex != ABSENT and not ask.painting.is_allow(vertex) and _is_open(m, node, value):
            detail = f"{m.flat.value_names[value]} is a sum that nothing bounds"
            yield Keep(detail, (), _behind(m, value), vertex)
    shifted = {node for node, _ in softmaxes(m)}
    for node in m.nodes("Exp", "Pow"):
        vertex, value = m.graph.source[m.made(node)], m.made(node)
        is_low = vertex == ABSENT or ask.painting.is_allow(vertex)
        if is_low or node in shifted or not (_is_exponential(m, node) and _is_wide(m, value)):
            continue
        behind = [*_behind(m, value, multiplies=True)]
        called = {m.op(m.graph.nodes[v]) for v in behind}
        if not m.is_part(node) and called & PRODUCTS and called & _NORMALISING:
            detail = f"{m.flat.value_names[value]} is an exponential that nothing bounds"
            yield Keep(detail, (), behind, vertex)


def _is_exponential(m: Match, node: int) -> bool:
    """Tell whether a node raises a constant to powers that are none."""
    return m.is_a(node, "Exp") or (m.is_constant(m.read(node)[0]) and m.power(node)[1] is None)


def _is_open(m: Match, node: int, value: int) -> bool:
    """Tell whether a sum may leave the range: it is long, or of unknown length, and unbounded."""
    if m.is_part(node) or not _is_wide(m, value):
        return False
    op = Operation(m.facts.intervals, node)
    if m.is_a(node, *_SCATTERS) and op.attribute("reduction", "none") != "add":
        return False
    longest = LONGEST_SPECTRUM if m.is_a(node, *_SPECTRA) else LONGEST
    length = op.terms or count_terms(m.flat, node)
    return length is None or length > longest


def _behind(m: Match, value: int, *, multiplies: bool = False) -> Iterator[int]:
    """Yield the vertices that read a value, or what was computed of it and may be as large."""
    todo = Worklist(value)
    for current in todo:
        if current != value and not _is_wide(m, current):
            continue
        around = todo.add(m.handing(current))
        yield from (m.graph.source[v] for v in around)
        for slot in m.flat.uses(current):
            node, vertex = m.flat.reader(slot), m.graph.reads[slot]
            if vertex == ABSENT or m.has(node, Trait.COMPARES) or m.is_part(node):
                continue
            yield vertex
            is_product = multiplies and m.op(node) in PRODUCTS
            if m.op(node) in _HANDING_ON or is_product or _weighs(m, node):
                todo.add(v for v in m.flat.outputs_of(node) if m.graph.is_float32(v))


def _weighs(m: Match, node: int) -> bool:
    """Tell whether a node is a product with weights."""
    contracts = m.has(node, Trait.CONTRACTS)
    return contracts and any(m.tensor(v) is not None for v in m.factors(node))


def _is_wide(m: Match, value: int) -> bool:
    return m.facts.intervals[value].magnitude >= m.low.overflow
