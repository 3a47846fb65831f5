"""The painting of a model as it is after one pass, in each round."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from amp_rewrite.base.name_patterns import suggestion
from amp_rewrite.base.printable import counted, printable
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.modules import all_names, nodes_called
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Stage
from amp_rewrite.rewriting.paint.painting import Color, Painting
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.paint.pipeline import paint
from amp_rewrite.rewriting.plan.paint_context import lists_of, paint_context
from amp_rewrite.rewriting.reasons import phrase

if TYPE_CHECKING:
    from amp_rewrite.graph.flat import FlatGraph
    from amp_rewrite.rewriting.plan.options import RewriteOptions

_NEW, _OLD = "*", " "
"""The mark in front of a type variable that the pass has marked, and of another one."""


def explain_after(
    flat: FlatGraph, options: RewriteOptions, name: str, nodes: Collection[str] = ()
) -> list[str]:
    """Return the painting after each time that a pass was asked: a line a type variable.

    `name` is that of the pass, or of a rule of the user; `nodes` those of nodes, modules or values,
    none for all nodes that have a mark.

    Raises:
        OptionError: There is no such pass, or no such node.
    """
    context = paint_context(flat, lists_of(options), options)
    stages = {step.name: {place.stage for place in step.places} for step in PASSES}
    names = [*stages, *context.own]
    if name not in names:
        expected = suggestion(name, names, "the name of a pass")
        remedy = "docs/painting.md lists them"
        raise OptionError(
            "no pass has this name", found=repr(name), expected=expected, remedy=remedy
        )
    chosen = set[int]()
    for node in nodes:
        chosen.update(meant := nodes_called(flat, node))
        if not meant:
            expected = suggestion(node, all_names(flat), "a name of a node or a module")
            raise OptionError("no node has this name", found=repr(node), expected=expected)
    times: list[tuple[Painting, Painting]] = []

    def watch(step: str, before: Painting, after: Painting) -> None:
        if step == name:
            times.append((before, after))

    paint(replace(context, watch=watch))
    if not times:
        given = stages.get(name, set()) <= {Stage.HARMED, Stage.JUDGING}
        why = "it looks at models that came in 16 bits" if given else "nothing became 16-bit"
        return [f"{name} was not asked: {why}"]
    return [
        line
        for number, (before, after) in enumerate(times, 1)
        for line in _lines(context, before, after, f"{name}, {number} of {len(times)}", chosen)
    ]


def _lines(
    context: PaintContext, before: Painting, after: Painting, title: str, nodes: Collection[int]
) -> Iterator[str]:
    graph, new = context.type_graph, after.changes(before)
    target = "" if context.target is None else context.target.name
    colors = {Color.ALLOW: context.low.name, Color.DENY: "denied", Color.NONE: FLOAT32.name}
    low, denied = int(after.allow.sum()), int(after.deny.sum())
    marked = counted(len(new), "type variable")
    yield f"{title}: {marked} marked; {low} of {after.size} {context.low.name}, {denied} denied"
    for vertex, mark in sorted(after.marks.items()):
        if not nodes or graph.nodes[vertex] in nodes:
            said = phrase(mark.reason, context.low.name, target)
            origin = "" if mark.because is None else f", from {graph.name(mark.because)}"
            detail = f": {mark.detail}" if mark.detail else ""
            op, color = graph.operator_of(vertex).op_type, colors[mark.color]
            line = f"{graph.name(vertex)} ({op}) {color}: {said}{origin}{detail}"
            yield printable(f"{_NEW if vertex in new else _OLD} {line}")
