"""Models in other float types read as what they stand for: float32 models.

A float16, bfloat16 or mixed model is a float32 model with some weights stored low, and a painting
that somebody chose. `wide_form` gives that model, in which weights are streams that become float32
when they are read, and notes the painting in the metadata of its nodes, where `paint` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from amp_rewrite.base.printable import counted, one_line
from amp_rewrite.dtypes import FLOAT64, LOW, OTHERS, DType
from amp_rewrite.errors import GraphError
from amp_rewrite.graph.custom import Customs
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.metadata_keys import GIVEN_KEY
from amp_rewrite.graph.paused_gc import paused_gc
from amp_rewrite.rewriting.apply.planned import Planned, noop_casts
from amp_rewrite.rewriting.apply.rewritten_graph import rewritten_flat
from amp_rewrite.rewriting.mend import Mended, mend_types
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import GivenNote
from amp_rewrite.rewriting.plan.casts import CastPlan, plan_casts
from amp_rewrite.rewriting.plan.options import Lists, Names, RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of
from amp_rewrite.rewriting.plan.raising import (
    computes_in_float32,
    float_types,
    raisable,
    raised,
    raising_context,
)
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.report.records import VERSION, Shown

if TYPE_CHECKING:
    from amp_rewrite.graph.io.load import Source


@dataclass(frozen=True)
class Raised(Planned):
    """A model of which some type variables became float32.

    Attributes:
        flat: The model that was given, its types mended.
        removed: The model's own Casts that become no-ops.
        mended: What was at odds in the file.
    """

    flat: FlatGraph
    context: PaintContext
    plan: CastPlan
    removed: tuple[int, ...]
    mended: Mended

    @property
    def changed(self) -> bool:
        """Whether the result differs from the input."""
        return bool(self.mended.odd) or not self.plan.is_empty


@dataclass(frozen=True)
class WideResult(Shown, Raised):
    """The float32 form of a model.

    Attributes:
        types: Other float type of the model -> how many results of nodes had it.
        left: The same for the results that could not become float32.
    """

    types: Mapping[DType, int] = field(default_factory=dict["DType", int])
    left: Mapping[DType, int] = field(default_factory=dict["DType", int])

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        return one_line(self, self.to_text())

    def to_dict(self) -> dict[str, Any]:
        """Return how many results became float32 from each type, and how many could not."""
        names = ("types", "left")
        counts = {n: {d.name: count for d, count in getattr(self, n).items()} for n in names}
        return {"version": VERSION, "changed": self.changed, **counts}

    def to_text(self) -> str:
        """Return what became float32, in one line."""
        if not self.types:
            return "nothing changed: the model has no other float type than float32"
        what = ", ".join(f"{count} results in {dtype.name}" for dtype, count in self.types.items())
        left = sum(self.left.values())
        kept = f"; {left} of them stay, which float32 cannot take the place of" if left else ""
        return f"{what} became float32, with {counted(len(self.plan.weights), 'constant')}{kept}"


def widen(
    model: Source, *, keep_io_types: bool | Names = True, lists: Lists = None, allow_ops: Names = ()
) -> WideResult:
    """Return the float32 form of a model in float16, bfloat16, float64 or a mixture.

    Every number is what it was: nothing is rounded, except that float64 becomes float32. Where
    that would spoil a count, an angle or a constant beyond 2^24 it stays.

    Args:
        model: A path, an onnx_ir model or a ModelProto; never modified.
        keep_io_types: Whether graph inputs and outputs keep their types, with casts inside; or the
            names of those that do, or patterns of them.
        lists: Op lists that describe operators without a schema, as for `rewrite`: what they
            compute in 16 bits becomes float32 as well.
        allow_ops: Such operators, as "domain::Op"; the same without a list.

    Raises:
        GraphError: Nothing of it can become float32.
        OptionError: `keep_io_types` names what the model has not.
        AmpError: The model is not valid.

    Examples:
        >>> low = amp.rewrite("model.onnx").model
        >>> amp.widen(low)
        <WideResult: 5 results in float16 became float32, with 2 constants>
    """
    options = RewriteOptions(
        precision="float32", keep_io_types=keep_io_types, lists=lists, allow_ops=allow_ops
    )
    with paused_gc():
        flat = read_source(model, inline_functions=True)
        options.check_names(flat)
        mended = mend_types(flat)
        flat = mended.flat
        flat.customs = _customs(flat, options)
        types = float_types(flat)
        context = raising_context(flat, OTHERS, ends=_changing_ends(flat, options))
        vertices = [v for v in raisable(context) if not _ends_a_model(context, v)]
        if _is_lost(types, flat, vertices):
            raise GraphError(
                "nothing of the model can become float32",
                found=", ".join(dtype.name for dtype in types),
                expected="operators whose schemas admit float32, at opset 7 or newer",
                remedy="raise_opset moves an old model to a newer opset",
            )
        plan = plan_casts(context, raised(context, vertices))
        graph, stays = context.type_graph, {*plan.retyped, *plan.ends}
        left = [
            graph.base(v)
            for v in flat.outputs
            if graph.is_retyped(v) and v not in stays and not _is_constant(flat, v)
        ]
        kept = {dtype: left.count(dtype) for dtype in types if dtype in left}
        removed = noop_casts(graph, plan)
        return WideResult(flat, context, plan, removed, mended, types, kept)


def _customs(flat: FlatGraph, options: RewriteOptions) -> Customs:
    """Return what op lists say of operators without a schema, for the model's 16-bit type."""
    has_words = options.lists is not None or options.allow_ops
    low = (
        max(float_types(flat).items(), key=lambda item: item[1], default=None)
        if has_words
        else None
    )
    if low is None or low[0].name not in LOW:
        return {}
    return lists_of(replace(options, precision=low[0].name)).customs


def _ends_a_model(context: PaintContext, vertex: int) -> bool:
    """Tell whether a vertex is what a Cast of float32 gives to an output that keeps its type."""
    graph, flat = context.type_graph, context.type_graph.flat
    node = graph.nodes[vertex]
    if flat.called(node)[:2] != ("", "Cast"):
        return False
    value = flat.outputs_of(node)[0]
    is_end = value in flat.main.outputs and value not in context.low_ends
    return is_end and not flat.uses(value) and graph.is_float32(flat.inputs_of(node)[0])


def _is_lost(types: Mapping[DType, int], flat: FlatGraph, vertices: Sequence[int]) -> bool:
    """Tell whether a model computes in other types, and nothing of that can become float32."""
    sources = {*flat.nodes_of("Cast", "Constant")}
    numbers = {dtype.number for dtype in types}
    type_of = infer(flat)
    computes = any(
        element(type_of[v] or "") in numbers and flat.producer[v] not in sources
        for v in flat.outputs
    )
    return computes and not vertices


def _is_constant(flat: FlatGraph, value: int) -> bool:
    return flat.called(flat.producer[value])[:2] == ("", "Constant")


@dataclass(frozen=True)
class WideForm:
    """A model as the float32 model that it stands for, and which nodes its nodes were."""

    given: FlatGraph
    context: PaintContext
    flat: FlatGraph
    origins: Sequence[int]


def wide_form(
    flat: FlatGraph, bases: Sequence[DType], *, ends: Iterable[int] = (), noted: bool = False
) -> WideForm | None:
    """Return a model as the float32 model that it stands for; None if nothing can be float32.

    `ends` are graph inputs and outputs that become float32, too. With `noted`, the nodes say which
    of their variables were low, and Casts to float32, which change nothing then, are left out.
    """
    context = raising_context(flat, bases, ends=ends)
    vertices = raisable(context)
    if not vertices:
        return None
    plan = plan_casts(context, raised(context, vertices))
    changed = {context.type_graph.nodes[vertex] for vertex in vertices}
    idle = [n for n in noop_casts(context.type_graph, plan) if noted and n not in changed]
    rewritten = rewritten_flat(flat, context.type_graph, plan, idle, {})
    form = WideForm(flat, context, rewritten.flat, rewritten.origins)
    if noted:
        _note(form, vertices)
    return form


def _note(form: WideForm, vertices: Sequence[int]) -> None:
    """Note in every node which one it was, and which of its type variables were low."""
    graph = form.context.type_graph
    low: dict[int, list[str]] = {ABSENT: ["T1", "T2"]}
    for vertex in vertices:
        low.setdefault(graph.nodes[vertex], []).extend(graph.kind_of(vertex).variables)
    for node, origin in enumerate(form.origins):
        if origin in low:
            text = GivenNote(origin, frozenset(low[origin])).text()
            message = form.flat.nodes[node]
            message.metadata_props.add(key=GIVEN_KEY, value=text)
            notes = form.flat.metadata.get(node, {})
            form.flat.metadata[node] = {**notes, GIVEN_KEY: text}


def _changing_ends(flat: FlatGraph, options: RewriteOptions) -> list[int]:
    """Return the graph inputs and outputs that are not to keep another type than float32."""
    names = flat.value_names
    ends = [v for v in (*flat.main.inputs, *flat.main.outputs) if not flat.is_initializer(v)]
    return [v for v in ends if options.ends_are_float32 or not options.keeps_type(names[v])]


def with_float32_ends(flat: FlatGraph) -> tuple[FlatGraph, int]:
    """Return a model whose graph inputs and outputs in 16 bits are float32, and its Casts."""
    boundary = (*flat.main.inputs, *flat.main.outputs)
    ends = [v for v in boundary if not flat.is_initializer(v)]
    context = raising_context(flat, [*LOW.values()], ends=ends)
    if not context.low_ends:
        return flat, 0
    plan = plan_casts(context, raised(context, ()))
    rewritten = rewritten_flat(flat, context.type_graph, plan, (), {}).flat
    return rewritten, len(plan.casts)


def single_precision(flat: FlatGraph, options: RewriteOptions) -> FlatGraph | None:
    """Return a model in whose float32 form a rewrite starts; None for the model itself.

    Other 16-bit types stand for float32. So does float64, in a model that computes nothing in
    float32: where both are, somebody chose which is which.
    """
    types = float_types(flat)
    bases = [dtype for dtype in types if dtype not in (options.low, FLOAT64)]
    if FLOAT64 in types and not computes_in_float32(flat):
        bases.append(FLOAT64)
    if not bases or flat.functions:
        return None
    mended = mend_types(flat).flat
    form = wide_form(mended, bases, ends=_changing_ends(mended, options))
    return None if form is None else form.flat
