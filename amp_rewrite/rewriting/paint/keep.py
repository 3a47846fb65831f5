"""Rules that keep vertices in float32: a function that yields what to keep, and why; see `keep`.

The decorator makes a pass of it: it says when the rule is asked, drops what is not low or what the
user allows, and of two marks for one vertex keeps the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Flag, auto
from typing import NamedTuple

from amp_rewrite.dtypes import may_leave_range
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place
from amp_rewrite.rewriting.paint.paint_pass import Stage as Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting
from amp_rewrite.rewriting.paint.painting import PassReason as PassReason
from amp_rewrite.rewriting.paint.painting import Reason as Reason
from amp_rewrite.rewriting.paint.value_facts import Match as Match

_GIVEN = {Stage.GIVEN: Stage.HARMED, Stage.KEEPING: Stage.JUDGING}
"""When a rule that tells a danger is asked of a painting that was given."""


class Need(Flag):
    """The condition for asking a rule."""

    NOTHING = 0
    SAFETY = auto()
    """No level makes everything low whatever it does to the results."""
    RANGE = auto()
    """Numbers may leave the range of the low type."""


class Ask(NamedTuple):
    """The context of the passes, and the painting of this round: a blank one before the first."""

    context: PaintContext
    painting: Painting


class Keep(NamedTuple):
    """The nodes that a rule keeps.

    Attributes:
        detail: Why: a sentence for the user.
        nodes: The nodes; all of their vertices are kept.
        vertices: Vertices besides.
        because: The vertex from which that spread, or None; it is kept for its own sake.
        constant: The value, a constant, that is to blame, or None.
        reason: The reason, where it is not that of the rule.
    """

    detail: str | None
    nodes: Iterable[int] = ()
    vertices: Iterable[int] = ()
    because: int | None = None
    constant: int | None = None
    reason: PassReason | None = None


Kept = Iterator[Keep]
Find = Callable[[Match, Ask], Kept]


def keep(
    name: str,
    reason: PassReason | str,
    stage: Stage = Stage.KEEPING,
    order: int = 0,
    *,
    needs: Need | None = None,
    danger: bool | None = None,
    overrules: bool = False,
) -> Callable[[Find], PaintPass]:
    """Make a pass of a function that yields what is to be kept in float32.

    Args:
        name: Its name.
        reason: Why it keeps something: a reason, or a text that follows the name of a node.
        stage: When it is asked: GIVEN, before anything is painted, or KEEPING, of what became low.
        order: Built-in rules of a stage are asked by it; the last one to mark a vertex wins.
        needs: What must hold; by default SAFETY, or nothing if it `overrules`.
        danger: Whether `check` and `repair` ask it, too: it is about what is wrong, not slow. None
            stands for that of the reason, or False for a text.
        overrules: Whether it keeps all that it yields: what is not low, and what the user allows.

    Examples:
        >>> from amp_rewrite.rules import Keep, keep
        >>> @keep("keep-exp-products", "multiplies an exponential")
        ... def keep_exp_products(m, ask):
        ...     for product in m.nodes("MatMul"):
        ...         if m.is_a(m.maker(m.base(m.read(product)[0])), "Exp"):
        ...             yield Keep("what it reads has no known bound", [product])
        >>> result = amp.rewrite("model.onnx", rules=[keep_exp_products])
        >>> print(amp.explain(result, "fc2"))
        fc2 (MatMul) stays float32: it multiplies an exponential: ... (rule keep-exp-products)
    """
    why = reason
    if not isinstance(why, PassReason):
        why = PassReason(f"rule:{name}", f"it {reason}", reason, danger=True)
        danger = bool(danger)
    danger = why.danger if danger is None else danger
    places = (Place(stage, order), *((Place(_GIVEN[stage], order),) if danger else ()))
    every = overrules or stage is Stage.GIVEN
    asked = (Need.NOTHING if overrules else Need.SAFETY) if needs is None else needs

    def rule(find: Find) -> PaintPass:
        def marks(context: PaintContext, painting: Painting) -> Marks:
            if not _is_asked(asked, context):
                return {}
            kept = find(context.values.match, Ask(context, painting))
            found = _marks(kept, why, context.type_graph)
            low = {v: mark for v, mark in found.items() if every or painting.is_allow(v)}
            return low if overrules else context.unless_allowed(low)

        return PaintPass(find, marks, name, places)

    return rule


def _is_asked(needs: Need, context: PaintContext) -> bool:
    """Tell whether what a rule needs holds."""
    is_unsafe = Need.SAFETY in needs and context.lists.is_unsafe
    return not is_unsafe and (Need.RANGE not in needs or may_leave_range(context.low))


def _marks(kept: Kept, reason: PassReason, graph: TypeGraph) -> dict[int, Mark]:
    """Return the marks of what is kept; of two for one vertex the first."""
    marks: dict[int, Mark] = {}
    for keep in kept:
        origin = Mark(Color.NONE, keep.reason or reason, None, keep.detail, keep.constant)
        spread = origin._replace(because=keep.because, constant=None)
        for vertex in (*keep.vertices, *(v for n in keep.nodes for v in graph.vertices_of(n))):
            is_origin = keep.because in (None, vertex)
            marks.setdefault(vertex, origin if is_origin else spread)
    return marks
