"""From a model in other float types to float32: which type variables change, and the plan for it.

A rewrite makes float32 variables low. The same plan, read backwards, makes float16, bfloat16 and
float64 variables float32: the vertices are those of the other types (`TypeGraph.bases`), the type
that they get is float32. What is not raised stays as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from amp_rewrite.dtypes import FLOAT32, FLOAT64, OTHERS, DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.constants import read_constants, stored_tensor
from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.elements import element, tensor
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.oplists import OpLists
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.passes.keep_demands import keep_demands
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.targets import SCHEMA, Target

# A constant follows what reads it; the others make their types themselves.
_UNCHANGED = having(Trait.OPAQUE, Trait.RANDOM) | {"Constant"}

_EXACT = 2 / FLOAT32.epsilon
"""Whole numbers are exact in float32 up to here: 2^24."""

_UNPAINTED = OpLists(FLOAT32.name, SCHEMA, ())
"""Raising asks no list: what float32 may compute is for the schemas to say."""


def float_types(flat: FlatGraph, *, constants: bool = True) -> dict[DType, int]:
    """Return each float type of a model but float32 -> how many results of nodes have it."""
    types = infer(flat)
    left_out = frozenset[int]() if constants else {*flat.nodes_of("Constant")}
    computed = [element(types[v] or "") for v in flat.outputs if flat.producer[v] not in left_out]
    counts = {dtype: computed.count(dtype.number) for dtype in OTHERS}
    return {dtype: count for dtype, count in counts.items() if count}


def computes_in_float32(flat: FlatGraph) -> bool:
    """Tell whether a node of a model computes a float32 tensor, casts and constants aside."""
    types, single = infer(flat), tensor(FLOAT32.number)
    sources = {*flat.nodes_of("Cast", "Constant", "ConstantOfShape")}
    return any(types[v] == single and flat.producer[v] not in sources for v in flat.outputs)


def raising_context(
    flat: FlatGraph,
    bases: Sequence[DType],
    *,
    ends: Iterable[int] = (),
    converts_weights: bool = True,
    target: Target | None = None,
) -> PaintContext:
    """Return what the plan for making a model float32 knows.

    `bases` and `ends`, graph inputs and outputs, become float32; `converts_weights` stores
    constants so, rather than behind a Cast; `target` is the one that the result is for.
    """
    type_graph = build_type_graph(flat, bases=tuple(bases))
    return PaintContext(
        type_graph,
        _UNPAINTED,
        FLOAT32,
        converts_weights=converts_weights,
        low_ends=frozenset(v for v in ends if type_graph.is_retyped(v)),
        target=target,
        values=ValueFacts(type_graph, FLOAT32),
    )


def raised(context: PaintContext, vertices: Iterable[int]) -> Painting:
    """Return the painting in which some vertices become float32."""
    marks = dict.fromkeys(vertices, Mark(Color.ALLOW, Reason.FORCED))
    return Painting.blank(context.type_graph).with_marks(marks)


def raisable(context: PaintContext) -> list[int]:
    """Return the vertices that can become float32; of float64 those that lose nothing by it.

    A constant is no vertex of its own: it follows what reads it. Nor is what a Cast reads, which is
    any type. What draws numbers would draw others.
    """
    graph = context.type_graph
    follows = graph.where(lambda k: k.operator[:2] == ("", "Cast") and k.variables == ("T1",))
    able = context.supported & ~graph.called(_UNCHANGED) & ~follows
    able &= ~graph.mask(_keep_float64(context))
    return list(vertices_in(able))


def _keep_float64(context: PaintContext) -> Iterator[int]:
    """Yield the vertices of float64 that float32 would spoil.

    They are counts, angles and positions beyond 2^24, and what reads a constant that float32 cannot
    hold: one out of its range, or a whole number beyond 2^24.
    """
    graph = context.type_graph
    if FLOAT64 not in graph.bases:
        return
    yield from keep_demands.run(context, Painting.blank(graph)).marks
    for value in read_constants(graph):
        held = stored_tensor(graph.flat, value)
        if held is None or held.dtype != FLOAT64.number:
            continue
        if not _fits(held.stream):
            yield from (v for v in graph.readers(value) if v != ABSENT)


def _fits(stream: Stream) -> bool:
    """Tell whether float32 holds the numbers of a stream, rounded at most as numbers in it are."""
    for block in stream.blocks():
        finite = np.abs(block[np.isfinite(block)])
        if (finite >= FLOAT32.overflow).any():
            return False
        if ((finite > _EXACT) & (finite == np.rint(finite)) & (finite < 2.0**63)).any():
            large = finite[finite > _EXACT]
            if (large.astype(FLOAT32.numpy).astype(FLOAT64.numpy) != large).any():
                return False
    return True


def vertices_called(type_graph: TypeGraph) -> Mapping[tuple[int, str], int]:
    """Return (node, variable) -> the vertex of it."""
    return {
        (node, variable): vertex
        for vertex, node in enumerate(type_graph.nodes)
        for variable in type_graph.kind_of(vertex).variables
    }
