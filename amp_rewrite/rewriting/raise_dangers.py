"""What of a model in 16 bits is dangerous by the rules, and the model with that in float32.

The model is read as its float32 form with the painting that somebody chose (`wide_form`), and that
painting loses what the rules of a rewrite would not have made low. What it loses is raised in the
model as it came: the rest stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from amp_rewrite.dtypes import LOW, DType, dtype_name
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.apply.planned import noop_casts
from amp_rewrite.rewriting.mend import Mended, Odd
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.painting import Painting, Reason
from amp_rewrite.rewriting.plan.casts import plan_casts
from amp_rewrite.rewriting.plan.raising import (
    float_types,
    raised,
    raising_context,
    vertices_called,
)
from amp_rewrite.rewriting.report.phrases import plain_phrase
from amp_rewrite.rewriting.widen import Raised, WideForm, wide_form

DANGERS = frozenset(
    {
        Reason.COUNT,
        Reason.DEMAND,
        Reason.DENY_LIST,
        Reason.DOWNSTREAM_OF_DENY,
        Reason.SQUARE,
        Reason.CONSTANT_OVERFLOW,
        Reason.CONSTANT_UNDERFLOW,
        Reason.LONG_SUM,
        Reason.MASK,
        Reason.UNBOUNDED_SUM,
        Reason.CERTAIN_OVERFLOW,
        Reason.LIKELY_OVERFLOW,
    }
)
"""The reasons for float32 that are about right and wrong, not about speed, kernels or rules."""


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


def low_of(flat: FlatProto) -> DType | None:
    """Return the 16-bit type that most results of a model have; None if it has none."""
    counts = {dtype: n for dtype, n in float_types(flat).items() if dtype.name in LOW}
    return max(counts, key=lambda dtype: counts[dtype], default=None)


def other_low(flat: FlatProto, low: DType) -> dict[str, int]:
    """Return each 16-bit type of a model but one -> how many results of nodes have it."""
    counts = float_types(flat).items()
    return {d.name: n for d, n in counts if d.name in LOW and d is not low}


DECLARED, READS = "declared-type", "mixed-types"
"""The reasons of dangers that are about the file, not about numbers."""


def odd_types(found: Iterable[Odd]) -> tuple[Danger, ...]:
    """Return a danger for each thing whose types were at odds."""
    return tuple(
        Danger(odd.name, odd.op, (), reason, f"{words}, so that runtimes refuse the file", more, "")
        for odd in found
        for reason, words, more in [_told(odd)]
    )


def _told(odd: Odd) -> tuple[str, str, str]:
    """Return the reason, the same in words, and what is known of the place."""
    if odd.value:
        told = f"{odd.value} is {' or '.join(odd.types)}" if odd.types else ""
        return DECLARED, "is declared with a type that it has not", told
    given = " and ".join(dtype_name(element(type_) or 0) for type_ in odd.types)
    return READS, f"is given {given} where its operator takes one type", ""


def form_of(flat: FlatProto, low: DType) -> WideForm:
    """Return the float32 form of a model in 16 bits, with its painting noted.

    Raises:
        GraphError: It has none.
    """
    form = wide_form(flat, [low], noted=True)
    if form is None:
        raise GraphError(
            f"nothing of the model in {low.name} can become float32",
            expected="operators whose schemas admit float32, at opset 7 or newer",
            remedy="raise_opset moves an old model to a newer opset",
        )
    return form


def dangers(context: PaintContext, painting: Painting, target: str) -> tuple[Danger, ...]:
    """Return what a painting keeps float32 because of a danger, in execution order."""
    found: dict[tuple[str, str], Danger] = {}
    for danger in _dangers(context, painting, target):
        first = found.setdefault((danger.node, danger.reason), danger)
        if first is not danger:
            both = (*first.variables, *danger.variables)
            found[danger.node, danger.reason] = replace(first, variables=both)
    return tuple(found.values())


def _dangers(context: PaintContext, painting: Painting, target: str) -> Iterator[Danger]:
    graph, flat = context.type_graph, context.type_graph.flat
    concerned = ~painting.allow if context.given is None else context.given & ~painting.allow
    for vertex in vertices_in(concerned):
        mark = painting.marks.get(vertex)
        if mark is None or mark.reason not in DANGERS:
            continue
        node = graph.nodes[vertex]
        yield Danger(
            flat.node_names[node],
            flat.called(node).op_type,
            graph.kind_of(vertex).variables,
            mark.reason.value,
            plain_phrase(mark.reason.value, context.low.name, target),
            mark.detail or "",
            "" if mark.because is None else graph.node_name(mark.because),
        )


def repaired(
    form: WideForm,
    painting: Painting,
    context: PaintContext,
    *,
    wide_ends: bool,
    weights: str,
    mended: Mended,
) -> Raised:
    """Return a model in which what a painting of its float32 form lost is float32.

    Args:
        form: The model and its float32 form.
        painting: The painting of the latter.
        context: What it knew.
        wide_ends: Whether graph inputs and outputs become float32.
        weights: "convert" stores weights of what is raised as float32; "cast" leaves them as they
            are stored, behind a Cast.
        mended: What was at odds in the file.
    """
    flat, low = form.given, form.context.type_graph.bases
    ends = (*flat.main.inputs, *flat.main.outputs) if wide_ends else ()
    made = raising_context(flat, low, ends=ends, converts_weights=weights == "convert")
    vertices = set(_lost(form, painting, context))
    plan = plan_casts(made, raised(made, sorted(vertices)))
    return Raised(flat, made, plan, noop_casts(made.type_graph, plan), mended)


def nothing_raised(mended: Mended, low: DType) -> Raised:
    """Return a model of which nothing is low but what was at odds, as it is now."""
    context = raising_context(mended.flat, [low])
    return Raised(mended.flat, context, plan_casts(context, raised(context, ())), (), mended)


def _lost(form: WideForm, painting: Painting, context: PaintContext) -> Iterable[int]:
    """Yield the vertices of the model as it came that are low and are to be no more."""
    if context.given is None:
        return
    graph, known = context.type_graph, vertices_called(form.context.type_graph)
    for vertex in vertices_in(context.given & ~painting.allow):
        node = form.origins[graph.nodes[vertex]]
        for variable in graph.kind_of(vertex).variables:
            if node != ABSENT and (node, variable) in known:
                yield known[node, variable]
