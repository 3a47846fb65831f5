"""Rules that keep vertices in float32: a function that yields what to keep, and why.

    @keep("keep-quotients", Reason.LIKELY_OVERFLOW, Stage.KEEPING, 60,
          "products of activations that only their quotient bounds, as in linear attention",
          needs=Need.SAFETY | Need.RANGE)
    def keep_quotients(m: Match, ask: Ask) -> Kept:
        for quotient in m.nodes("Div"):
            ...
            yield Keep("nothing bounds ...", nodes)

The decorator makes a pass of it: it says when the rule is asked, drops what is not low or what the
user allows, and of two marks for one vertex keeps the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Flag, auto
from typing import TYPE_CHECKING, NamedTuple

from amp_rewrite.dtypes import may_leave_range
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason, Reason

if TYPE_CHECKING:
    from amp_rewrite.rewriting.paint.context import PaintContext
    from amp_rewrite.rewriting.paint.match import Match

_GIVEN = {Stage.GIVEN: Stage.HARMED, Stage.KEEPING: Stage.JUDGING}
"""When a rule that tells a danger is asked of a painting that was given."""


class Need(Flag):
    """What must hold for a rule to be asked."""

    NOTHING = 0
    SAFETY = auto()
    """No level makes everything low whatever it does to the results."""
    RANGE = auto()
    """Numbers may leave the range of the low type."""


class Ask(NamedTuple):
    """Of what a rule is asked.

    Attributes:
        context: What the passes know.
        painting: What this round has painted; a blank one before the first.
    """

    context: PaintContext
    painting: Painting


class Keep(NamedTuple):
    """What a rule keeps.

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
    reason: Reason | PassReason | None = None


Kept = Iterator[Keep]
Find = Callable[["Match", Ask], Kept]


class Rule(PaintPass):
    """A pass that keeps what a function finds; see `keep`."""

    def __init__(
        self,
        find: Find,
        name: str,
        reason: Reason | PassReason,
        places: tuple[Place, ...],
        needs: Need,
        *,
        overrules: bool,
    ) -> None:
        """Take what `keep` says."""
        self.name, self.places = name, places  # pyright: ignore
        self.reasons = (reason,) if isinstance(reason, PassReason) else ()  # pyright: ignore
        self._find, self._reason, self._needs, self._overrules = find, reason, needs, overrules
        self.__doc__, self.__module__ = find.__doc__, find.__module__

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with what is kept marked; nodes that the user allows are not."""
        if Need.SAFETY in self._needs and context.lists.is_unsafe:
            return painting
        if Need.RANGE in self._needs and not may_leave_range(context.low):
            return painting
        marks = dict[int, Mark]()
        every = self._overrules or self.places[0].stage is Stage.GIVEN
        for detail, nodes, vertices, because, constant, reason in self._find(
            context.values.match, Ask(context, painting)
        ):
            origin = Mark(Color.NONE, reason or self._reason, None, detail, constant)
            spread = origin if because is None else origin._replace(because=because, constant=None)
            for vertex in (*vertices, *_vertices(context, nodes)):
                if every or painting.is_allow(vertex):
                    marks.setdefault(vertex, origin if vertex == because else spread)
        return painting.with_marks(marks if self._overrules else context.unless_allowed(marks))


def _vertices(context: PaintContext, nodes: Iterable[int]) -> Iterator[int]:
    """Yield the vertices of nodes."""
    for node in nodes:
        yield from context.type_graph.vertices_of(node)


def keep(
    name: str,
    reason: Reason | PassReason,
    stage: Stage,
    order: int,
    row: str,
    *,
    needs: Need = Need.SAFETY,
    danger: bool = False,
    overrules: bool = False,
) -> Callable[[Find], Rule]:
    """Make a pass of a function that yields what is to be kept in float32.

    Args:
        name: Its name.
        reason: Why it keeps something.
        stage: When it is asked.
        order: Rules of a stage are asked by it; the last one to mark a vertex wins.
        row: What docs/painting.md says of it.
        needs: What must hold.
        danger: Whether `check` and `repair` ask it, too: it is about what is wrong, not slow.
        overrules: Whether it keeps all that it yields: what is not low, and what the user allows.
    """
    places = (Place(stage, order, row), *((Place(_GIVEN[stage], order),) if danger else ()))
    return lambda find: Rule(find, name, reason, places, needs, overrules=overrules)
