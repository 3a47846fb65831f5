"""Dangers of a 16-bit model by the rules, and where.

A danger is told of what users know: a node of their file, or an input or output of it. The float32
form that the rules look at has Casts besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from amp_rewrite.dtypes import dtype_name
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.rewriting.mend import Odd
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import given_notes
from amp_rewrite.rewriting.paint.painting import Painting, Reason
from amp_rewrite.rewriting.raise_dangers import Variable, lost_in, rounding_casts
from amp_rewrite.rewriting.reasons import plain_phrase
from amp_rewrite.rewriting.widen import WideForm

_UNLOADABLE = frozenset({Reason.NO_KERNEL, Reason.RUNTIME_FUSION})
"""The reasons for which a model in 16 bits does not load."""


@dataclass(frozen=True)
class Danger:
    """A node that computes in a low type, and should not.

    Attributes:
        node: Its name.
        op: Its operator.
        variables: The type variables that are low.
        reason: Why: a word of painting.md.
        words: The same in words.
        detail: What is known of this node, or "".
        because: The node from which the danger comes, or "" where it begins.
    """

    node: str
    op: str
    variables: tuple[str, ...]
    reason: str
    words: str
    detail: str
    because: str


DECLARED, READS, TWICE = "declared-type", "mixed-types", "repeated-node"
SCALES = "rounded-scales"
OF_THE_FILE = (DECLARED, READS, TWICE, SCALES)
"""The reasons of dangers that are about the file, not about numbers."""

ROUNDED = "rounded-before-float32"
"""The reason of a Cast to 16 bits in front of what needs the float32 numbers that it is given."""


def odd_types(odds: Iterable[Odd]) -> tuple[Danger, ...]:
    """Return a danger for each thing that was wrong in the file."""
    return tuple(
        Danger(odd.name, odd.op, (), reason, words, more, "")
        for odd in odds
        for reason, words, more in [_told_of(odd)]
    )


def _told_of(odd: Odd) -> tuple[str, str, str]:
    """Return the reason, the same in words, and what is known of the place."""
    refused = ", so that runtimes refuse the file"
    if odd.scales:
        return SCALES, f"has scales stored in float16: {odd.scales}", ""
    if odd.value:
        told = f"{odd.value} is {' or '.join(odd.types)}" if odd.types else ""
        return DECLARED, f"has a wrong declared type{refused}", told
    if not odd.types:
        return TWICE, f"stands in the file twice{refused}", ""
    type_names = " and ".join(dtype_name(element(type_) or 0) for type_ in odd.types)
    if len(odd.types) == 1:
        return READS, f"is given {type_names}, which its operator does not take{refused}", ""
    return READS, f"is given {type_names} where its operator takes one type{refused}", ""


def dangers(context: PaintContext, painting: Painting, target: str) -> tuple[Danger, ...]:
    """Return what a painting keeps float32 because of a danger, in execution order."""
    graph = context.type_graph
    places = {v: _place(graph, v) for v in _kept(context, painting)}
    return _grouped(_told(context, painting, target, v, places) for v in places)


class FormDangers(NamedTuple):
    """The dangers that are gone when a model is repaired, and those of ends that stay 16-bit."""

    raised: tuple[Danger, ...]
    stay: tuple[Danger, ...]


def form_dangers(
    form: WideForm, painting: Painting, context: PaintContext, target: str, *, wide_ends: bool
) -> FormDangers:
    """Return the dangers of a model in 16 bits, named as its nodes, inputs and outputs."""
    graph, model = context.type_graph, form.given
    variables = lost_in(form, painting, context, wide_ends=wide_ends)
    lost = {node for node, _ in variables}
    notes = given_notes(graph.flat)
    places: dict[int, tuple[str, str]] = {}
    stay: set[int] = set()
    for vertex in vertices_in(_concerned(context, painting)):
        note = notes.get(graph.nodes[vertex])
        if note is None:
            continue
        if note.node in lost:
            places[vertex] = _place_of(graph, vertex, model, note.node)
            continue
        places[vertex] = _end_of(graph, vertex) or _place_of(graph, vertex, model, note.node)
        mark = painting.marks.get(vertex)
        is_echo = places[vertex][1] == _INPUT and mark is not None and mark.because is not None
        if is_echo:  # what is demanded of it is met inside, by the Cast that reads it
            del places[vertex]
        elif not wide_ends:
            stay.add(vertex)
    kept = [v for v in _kept(context, painting) if v in places]
    told = {v: _told(context, painting, target, v, places) for v in kept}
    return FormDangers(
        (
            *_rounded(form, variables, context.low.name),
            *_grouped(danger for v, danger in told.items() if v not in stay),
        ),
        _grouped(danger for v, danger in told.items() if v in stay),
    )


def _rounded(form: WideForm, lost: AbstractSet[Variable], low: str) -> Iterator[Danger]:
    """Yield the Casts that round float32 numbers in front of what is lost."""
    flat, told = form.given, f"rounds float32 numbers to {low} in front of what needs them"
    others = {name for name in lost if flat.called(name[0])[:2] != ("", "Cast")}
    for node, variable in sorted(rounding_casts(form, others) & lost):
        if flat.called(node)[:2] == ("", "Cast"):
            yield Danger(flat.node_names[node], "Cast", (variable,), ROUNDED, told, "", "")


_INPUT, _OUTPUT = "input", "output"


def is_end(danger: Danger) -> bool:
    """Tell whether a danger is that of an input or output of the model, not of a node."""
    return danger.op in (_INPUT, _OUTPUT)


def _end_of(graph: TypeGraph, vertex: int) -> tuple[str, str] | None:
    """Return the input or output of the model that a Cast stands at, through further Casts."""
    flat, node = graph.flat, graph.nodes[vertex]
    if flat.called(node)[:2] != ("", "Cast"):
        return None
    source = flat.inputs_of(node)[0]
    while True:
        value = flat.outputs_of(node)[0]
        if value in flat.main.outputs:
            return flat.value_names[value], _OUTPUT
        readers = flat.readers(value)
        if len(readers) != 1 or flat.called(readers[0])[:2] != ("", "Cast"):
            break
        node = readers[0]
    return (flat.value_names[source], _INPUT) if source in flat.main.inputs else None


def _place_of(graph: TypeGraph, vertex: int, model: FlatGraph, node: int) -> tuple[str, str]:
    """Return the name and the operator of a node as the model came, or of a Cast of the form."""
    if node == ABSENT:
        return _place(graph, vertex)
    return model.node_names[node], model.called(node).op_type


def _place(graph: TypeGraph, vertex: int) -> tuple[str, str]:
    """Return the name and the operator of the node of a vertex."""
    return graph.node_name(vertex), graph.operator_of(vertex).op_type


def _concerned(context: PaintContext, painting: Painting) -> Array:
    """Return a mask of the vertices that a model has low, or would, and that are to be no more."""
    return ~painting.allow if context.given is None else context.given & ~painting.allow


def _kept(context: PaintContext, painting: Painting) -> Iterator[int]:
    """Yield those of them that are so because of a danger."""
    also = () if context.given is None else _UNLOADABLE
    for vertex in vertices_in(_concerned(context, painting)):
        mark = painting.marks.get(vertex)
        if mark is not None and (mark.reason.danger or mark.reason in also):
            yield vertex


def _told(
    context: PaintContext,
    painting: Painting,
    target: str,
    vertex: int,
    places: Mapping[int, tuple[str, str]],
) -> Danger:
    graph, mark = context.type_graph, painting.marks[vertex]
    name, op = places[vertex]
    source = mark.because
    return Danger(
        name,
        op,
        graph.kind_of(vertex).variables,
        str(mark.reason),
        plain_phrase(mark.reason, context.low.name, target),
        mark.detail or "",
        "" if source is None else places.get(source, _place(graph, source))[0],
    )


def _grouped(parts: Iterable[Danger]) -> tuple[Danger, ...]:
    """Return one danger for all variables of a place that are so for one reason."""
    groups: dict[tuple[str, str, str], Danger] = {}
    for danger in parts:
        first = groups.setdefault((danger.node, danger.op, danger.reason), danger)
        if first is not danger:
            both = tuple(dict.fromkeys((*first.variables, *danger.variables)))
            groups[danger.node, danger.op, danger.reason] = replace(first, variables=both)
    return tuple(groups.values())
