"""A pass of the painting, and its place in the order."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from amp_rewrite.rewriting.paint.painting import Marks, Painting

if TYPE_CHECKING:
    from amp_rewrite.rewriting.paint.context import PaintContext


class Stage(StrEnum):
    """When passes run (painting.md, sections 3 and 4)."""

    GIVEN = "given"
    """Exclusions of every round, whatever is painted; the last to mark a vertex wins."""
    SEEDING = "seeding"
    COLORING = "coloring"
    KEEPING = "keeping"
    """Exclusions of one round, all of the same painting; the last to mark a vertex wins."""
    SAVING = "saving"
    """Passes that save casts once the rest is decided."""
    HARMED = "harmed"
    JUDGING = "judging"
    """Dangers of a painting that was given: those of KEEPING that tell one; HARMED: of GIVEN."""


class Place(NamedTuple):
    """When a pass runs; passes of a stage run by their order, and no two have the same."""

    stage: Stage
    order: int


class PaintPass:
    """A step of the painting: pure, without state between calls."""

    def __init__(
        self,
        function: Callable[..., Any],
        marks: Callable[[PaintContext, Painting], Marks],
        name: str,
        places: tuple[Place, ...],
    ) -> None:
        """Take the function that was written, and what makes marks of it."""
        self.name, self.places, self._marks = name, places, marks
        self.__doc__, self.__module__ = function.__doc__, function.__module__

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the new painting."""
        return painting.with_marks(self._marks(context, painting))


def paints(
    name: str, *places: Place
) -> Callable[[Callable[[PaintContext, Painting], Marks]], PaintPass]:
    """Make a pass of a function that returns marks."""
    return lambda marks: PaintPass(marks, marks, name, places)
