"""Operators with a constant that does not fit 16 bits stay float32.

A mask that is "lower than everything" may saturate (rewriting/paint/saturation.py), and a bound of
Clip may become infinite. Any other constant out of range keeps its consumer in float32, which it
may reach through operators that only move elements (Reshape, If): a BatchNormalization variance of
9.8e7 (ppocrv4_det), a scale of 2^20 (silero_v4).

Evidence: ppocrv4_det in float16: error over 1,000 % without the pass, passed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from amp_rewrite.graph.constants import default_tensor, filled_tensor, is_repeated
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.masks import MASKING, enters_as_mask
from amp_rewrite.rewriting.paint.match import Worklist
from amp_rewrite.rewriting.paint.saturation import overflows_below_only, saturates_in_float32

_HANDING_ON = having(Trait.MOVES, Trait.CHANGES_SIGN, Trait.HOLDS, Trait.SUBGRAPHS)
"""Operators that hand a constant on, with its magnitude, to their own consumers."""

_CARRYING = _HANDING_ON | MASKING


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


@keep("keep-overflows", Reason.CONSTANT_OVERFLOW, Stage.KEEPING, 80, overrules=True)
def keep_overflows(m: Match, ask: Ask) -> Kept:
    """Unpaint what computes with a constant out of range, unless it may be replaced there."""
    if m.facts.fits:
        return
    yield from _defaults(m, ask)
    concerned = (ask.painting.allow | m.graph.called(_CARRYING)).tobytes()
    constants = [c for c in _read_constants(m) if any(concerned[v] for v in c[-1])]
    for value, tensor, readers in reversed(constants):  # the last one is told
        if m.facts.stats(value, tensor).overflow(m.low):
            least = overflows_below_only(tensor.stream, m.low)
            yield _kept(m, value, tensor, list(_spoilt(m, ask, value, readers, least)))


def _defaults(m: Match, ask: Ask) -> Iterator[Keep]:
    """Yield what reads an input whose default does not fit."""
    for value in reversed(m.flat.main.inputs):
        readers = ask.painting.low_readers(m.graph, value)
        tensor = default_tensor(m.graph, value) if readers else None
        if tensor is not None and m.facts.stats(value, tensor).overflow(m.low):
            yield _kept(m, value, tensor, readers)


def _kept(m: Match, value: int, tensor: StoredTensor, vertices: list[int]) -> Keep:
    reached, low = m.facts.stats(value, tensor).max_abs, m.low
    name = m.flat.value_names[value]
    detail = f"constant {name} reaches {reached:.4g}, {low.name} ends at {low.max:.6g}"
    return Keep(detail, (), vertices, constant=value)


def _spoilt(m: Match, ask: Ask, value: int, readers: Iterable[int], least: bool) -> Iterator[int]:
    """Yield the low vertices that a constant reaches and that need it as it is."""
    for step in _reached(m, ask, value, readers, least):
        if ask.painting.is_allow(step.vertex) and not _tolerates(m, ask, step, value, least):
            yield step.vertex


def _reached(
    m: Match, ask: Ask, value: int, readers: Iterable[int], least: bool
) -> Iterator[_Step]:
    """Yield the vertices that a constant reaches; float32 arithmetic hands on masks only."""
    graph, converts = m.graph, ask.context.converts_weights

    def step_to(vertex: int, is_low: bool, is_whole: bool, source: int) -> _Step:
        is_bias = enters_as_mask(
            graph, vertex, lambda v: v == value if source == ABSENT else graph.source[v] == source
        )
        return _Step(vertex, is_low, is_whole, is_bias)

    todo = Worklist(*(step_to(v, converts, True, ABSENT) for v in readers))
    for step in todo:
        yield step
        called, is_low = m.op(graph.nodes[step.vertex]), ask.painting.is_allow(step.vertex)
        if called in _HANDING_ON:
            behind = (step.is_low and is_low, step.is_whole)
        elif least and not is_low and called in MASKING:
            behind = (False, False)
        else:
            continue
        todo.add(step_to(v, *behind, step.vertex) for v in graph.successors(step.vertex))


def _tolerates(m: Match, ask: Ask, step: _Step, value: int, least: bool) -> bool:
    """Tell whether a vertex gives the same result with the constant out of range replaced.

    A mask that arrives as float32 is cast at run time and becomes infinite, unless it saturates
    before, as a constant or in front of the Cast. What else is computed with a constant may well be
    in range.
    """
    node = m.graph.nodes[step.vertex]
    if m.is_a(node, "Clip"):
        return m.read(node)[0] != value
    if not (least and (step.is_bias or m.facts.masks.ends(step.vertex))):
        return not step.is_whole or (not step.is_low and _is_clamped(m, ask, step.vertex))
    if step.is_low and step.is_whole:
        return True
    return saturates_in_float32(ask.context, value) or _is_clamped(m, ask, step.vertex)


def _is_clamped(m: Match, ask: Ask, vertex: int) -> bool:
    """Tell whether all that a vertex reads behind Casts ends where the low type does."""
    graph, flat, allow = m.graph, m.flat, ask.painting.allow
    node = graph.nodes[vertex]
    slots = range(flat.input_start[node], flat.input_start[node + 1])
    read = {flat.inputs[slot] for slot in slots if graph.reads[slot] == vertex}
    cast_inputs = [v for v in read if (s := graph.source[v]) != ABSENT and not allow[s]]
    if not cast_inputs:
        return all(graph.source[v] != ABSENT for v in read)
    limit = m.facts.masks.limit
    return all(limit(v, ask.painting.low_readers(graph, v)) for v in cast_inputs)


def _read_constants(m: Match) -> Iterator[tuple[int, StoredTensor, list[int]]]:
    """Yield the float32 constants of a model, and the vertices that read or repeat each."""
    type_graph, flat, owners = m.graph, m.flat, _owners(m.graph)
    makers = m.nodes(*having(Trait.HOLDS))
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
