"""A model in 16 bits with what is dangerous by the rules in float32.

The model is read as its float32 form with its painting (`wide_form`). What that painting loses is
raised in the model as it came: the rest stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from amp_rewrite.dtypes import FLOAT32, LOW, DType
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.rewriting.apply.planned import noop_casts
from amp_rewrite.rewriting.mend import Mended
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import given_notes
from amp_rewrite.rewriting.paint.painting import Painting
from amp_rewrite.rewriting.plan.casts import plan_casts
from amp_rewrite.rewriting.plan.raising import float_types, raised, raising_context, vertices_called
from amp_rewrite.rewriting.widen import Raised, WideForm, wide_form
from amp_rewrite.targets import Target


def low_types(flat: FlatGraph) -> dict[DType, int]:
    """Return each 16-bit type that a model computes in -> how many results have it, most first."""
    counts = {d: n for d, n in float_types(flat, constants=False).items() if d.name in LOW}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def low_of(flat: FlatGraph) -> DType | None:
    """Return the 16-bit type that most results of a model have; None if it computes none."""
    return next(iter(low_types(flat)), None)


def form_of(flat: FlatGraph, *lows: DType) -> WideForm:
    """Return the float32 form of a model in some 16-bit types, with its painting noted.

    Raises:
        GraphError: It has none.
    """
    form = wide_form(flat, lows, noted=True)
    if form is None:
        raise GraphError(
            f"nothing of the model in {lows[0].name} can become float32",
            expected="operators whose schemas admit float32, at opset 7 or newer",
            remedy="raise_opset moves an old model to a newer opset",
        )
    return form


def repaired(
    form: WideForm,
    lost: AbstractSet[Variable],
    *,
    target: Target | None,
    wide_ends: bool,
    weights: str,
    mended: Mended,
) -> Raised:
    """Return a model in which some of its 16-bit variables are float32."""
    flat, lows = form.given, form.context.type_graph.bases
    boundary = (*flat.main.inputs, *flat.main.outputs) if wide_ends else ()
    ends = [value for value in boundary if not flat.is_initializer(value)]
    converts = weights == "convert"
    context = raising_context(flat, lows, ends=ends, converts_weights=converts, target=target)
    vertex_of = vertices_called(context.type_graph)
    plan = plan_casts(context, raised(context, sorted(vertex_of[name] for name in lost)))
    return Raised(flat, context, plan, noop_casts(context.type_graph, plan), mended)


def nothing_raised(mended: Mended, low: DType) -> Raised:
    """Return a model of which nothing is low but what was at odds, as it is now."""
    context = raising_context(mended.flat, [low])
    return Raised(mended.flat, context, plan_casts(context, raised(context, ())), (), mended)


Variable = tuple[int, str]
"""A node of the model as it came, and one of its type variables."""


def lost_in(
    form: WideForm, painting: Painting, context: PaintContext, *, wide_ends: bool
) -> set[Variable]:
    """Return what is low in the model as it came and is to be no more.

    Not a Cast to what stays low whatever becomes of the Cast: an output that keeps its type, and
    nodes that do. Another Cast in front of that would change nothing.
    """
    if context.given is None:
        return set()
    graph, notes = context.type_graph, given_notes(context.type_graph.flat)
    vertex_of = vertices_called(form.context.type_graph)
    variables: set[Variable] = set()
    for vertex in vertices_in(context.given & ~painting.allow):
        node = notes[graph.nodes[vertex]].node
        names = ((node, variable) for variable in graph.kind_of(vertex).variables)
        variables |= {name for name in names if node != ABSENT and name in vertex_of}
    variables |= rounding_casts(form, variables)
    return variables if wide_ends else variables - _idle(form, variables)


def rounding_casts(form: WideForm, lost: AbstractSet[Variable]) -> set[Variable]:
    """Return the Casts of float32 to 16 bits that what is lost reads, and what moves their result.

    The float32 numbers are there, one Cast in front: 30,000 and 30,001 are one number behind it.
    """
    graph, flat = form.context.type_graph, form.given
    vertex_of = vertices_called(graph)
    of_vertex = {vertex: name for name, vertex in vertex_of.items()}
    casts: set[Variable] = set()
    for name in lost:
        slots = range(flat.input_start[name[0]], flat.input_start[name[0] + 1])
        for value in (flat.inputs[s] for s in slots if graph.reads[s] == vertex_of[name]):
            way = _way_to_float32(graph, value)
            casts |= {of_vertex[vertex] for vertex in way if vertex in of_vertex}
    return casts - lost


def _way_to_float32(graph: TypeGraph, value: int) -> list[int]:
    """Return the vertices from a Cast of float32 to a 16-bit value, through moves; else none."""
    flat, way = graph.flat, list[int]()
    while flat.producer[value] != ABSENT and graph.source[value] != ABSENT:
        node = flat.producer[value]
        way.append(graph.source[value])
        called, read = flat.called(node), flat.inputs_of(node)
        source = read[0] if read else ABSENT
        if called[:2] == ("", "Cast"):
            return way if graph.types[source] == tensor(FLOAT32.number) else []
        if not has(called, Trait.REARRANGES) or source == ABSENT:
            return []
        value = source
    return []


def _idle(form: WideForm, lost: AbstractSet[Variable]) -> set[Variable]:
    """Return the Casts among what is lost whose result nothing reads that becomes float32."""
    graph, flat = form.context.type_graph, form.given
    vertex_of = vertices_called(graph)
    raised_vertices = {vertex_of[name] for name in lost}
    variables: set[Variable] = set()
    for node, variable in sorted(lost, reverse=True):
        if flat.called(node)[:2] != ("", "Cast"):
            continue
        (source,), (value,) = flat.inputs_of(node), flat.outputs_of(node)
        was_low = graph.is_retyped(source) and graph.source[source] in raised_vertices
        readers = {*graph.readers(value), *_receivers(graph, value)}
        if not was_low and readers.isdisjoint(raised_vertices):
            variables.add((node, variable))
            raised_vertices.discard(vertex_of[node, variable])
    return variables


def _receivers(graph: TypeGraph, value: int) -> Iterator[int]:
    """Yield the vertices of owners that receive a value as the output of a subgraph."""
    for number, vertices in graph.sinks.items():
        ends = zip(graph.flat.bodies[number].outputs, vertices, strict=True)
        yield from (vertex for end, vertex in ends if end == value)
