"""Why a vertex that no pass marked stays float32."""

from __future__ import annotations

from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext, admitting_opset
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason


def why(context: PaintContext, painting: Painting, vertex: int) -> Mark:
    """Return the mark of a vertex, or one that says why no pass gave it any."""
    mark = painting.marks.get(vertex)
    if mark is not None:
        return _with_opset(context, vertex, mark)
    refusal = context.refusal(vertex)
    if refusal is not None:
        return refusal
    return _by_list(context, vertex) or _by_position(context, painting, vertex)


def _by_list(context: PaintContext, vertex: int) -> Mark | None:
    entry = context.entry(context.type_graph.nodes[vertex])
    if entry is None:
        return Mark(Color.NONE, Reason.UNKNOWN_OPERATOR, None, "no op list knows the operator")
    if entry.list is ListName.UNLISTED:
        return Mark(Color.NONE, Reason.UNLISTED, None, entry.why)
    unsupported = context.unsupported(vertex)
    return (
        None if unsupported is None else _with_opset(context, vertex, Mark(Color.NONE, unsupported))
    )


def _with_opset(context: PaintContext, vertex: int, mark: Mark) -> Mark:
    """Add to a type that the schema does not admit yet from which opset on it does."""
    if mark.reason is not Reason.TYPE_UNSUPPORTED or mark.detail is not None:
        return mark
    kind = context.type_graph.kind_of(vertex)
    opset = admitting_opset(kind, context.low)
    if opset is None:
        return mark
    detail = (
        f"{kind.operator.op_type} admits it since opset {opset}, the model imports "
        f"{kind.opset}; `convert --opset {opset}` raises it"
    )
    return mark._replace(detail=detail)


def _by_position(context: PaintContext, painting: Painting, vertex: int) -> Mark:
    if not painting.allow.any():
        return Mark(Color.NONE, Reason.NO_ALLOW)
    if context.variable_reads[vertex]:
        return Mark(Color.NONE, Reason.VARIABLE_READ)
    clear = context.list_of(vertex) is ListName.CLEAR
    return Mark(Color.NONE, Reason.NOT_NEXT if clear else Reason.NOT_BETWEEN)
