"""The painting as a whole: the passes in order, and the rounds until they agree.

The algorithm: docs/painting.md, sections 3 and 4. Each round but the last excludes vertices that no
earlier one did, and colors the model from the start; the models of the corpus need one or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from amp_rewrite.graph.dataflow import vertices_in
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.paint.passes.keep_in_range import keep_in_range
from amp_rewrite.rewriting.paint.passes.keep_overflows import keep_overflows
from amp_rewrite.rewriting.paint.passes.spread_deny import spread_deny


def passes_of(stage: Stage) -> tuple[PaintPass, ...]:
    """Return the passes of a stage in their order."""
    placed = ((p.order, step) for step in PASSES for p in step.places if p.stage is stage)
    return tuple(step for _, step in sorted(placed, key=lambda pair: pair[0]))


GIVEN, SEEDING, COLORING = map(passes_of, (Stage.GIVEN, Stage.SEEDING, Stage.COLORING))
KEEPING, SAVING = map(passes_of, (Stage.KEEPING, Stage.SAVING))
HARMED, JUDGING = map(passes_of, (Stage.HARMED, Stage.JUDGING))

_RANGES = frozenset({keep_in_range.name, keep_overflows.name})
"""The passes that ask whether numbers fit the low type: they mark nothing if all do."""


class Round(NamedTuple):
    """One round: what it colored, and what each keeping pass marked in that, by its name."""

    painting: Painting
    kept: Mapping[str, Mapping[int, Mark]]


@dataclass(frozen=True)
class Course:
    """The beginning of a painting: what every round excluded, and the first round."""

    always: Mapping[int, Mark]
    first: Round


@dataclass(frozen=True)
class PaintResult:
    """A finished painting, what the passes of the last round knew, and how it began."""

    context: PaintContext
    painting: Painting
    course: Course | None = None


def paint(context: PaintContext) -> PaintResult:
    """Paint a model: rounds of `paint_once` until nothing is left to exclude, then fewer casts."""
    if context.given is not None:
        given = context.excluding(_always(context, HARMED))
        given, rounds = _rounds(given, [], keep_given, JUDGING)
        kept = {**given.excluded, **context.kept}
        return PaintResult(given, rounds[-1].painting.with_marks(kept))
    always = _always(context)
    context, rounds = _rounds(context.excluding(always), [])
    return _saved(context, rounds[-1].painting, Course(always, rounds[0]))


def _always(context: PaintContext, steps: tuple[PaintPass, ...] = GIVEN) -> dict[int, Mark]:
    """Return what every round excludes."""
    blank, start = Painting.blank(context.type_graph), context.excluded
    for step in steps:
        context = context.excluding(step.run(context, blank).marks)
    return {v: m for v, m in context.excluded.items() if start.get(v) is not m}


def _rounds(
    context: PaintContext,
    rounds: list[Round],
    color: Callable[[PaintContext], Painting] | None = None,
    keeping: tuple[PaintPass, ...] = KEEPING,
) -> tuple[PaintContext, list[Round]]:
    """Paint rounds behind some that are known, until nothing is left to exclude."""
    while True:
        painting = (color or paint_once)(context)
        rounds.append(Round(painting, _by_pass(context, painting, keeping)))
        kept = _new(context, rounds[-1].kept.values())
        if not kept:
            return context, rounds
        context = _without(context, kept)


def _saved(context: PaintContext, painting: Painting, course: Course) -> PaintResult:
    for step in SAVING:
        painting = step.run(context, painting)
    return PaintResult(context, painting.with_marks(context.excluded), course)


def paint_fitting(context: PaintContext, course: Course | None) -> PaintResult:
    """Return the painting of a model of which all numbers are taken to fit the low type.

    Its first round is that of the painting that knows the numbers (`course`, if known), and so is
    what the passes mark in it that do not ask whether they fit.
    """
    start = replace(context, values=context.values.fitting(), excluded={})
    if course is None or context.joined:
        return paint(start)
    start, first = start.excluding(course.always), course.first
    kept = {name: marks for name, marks in first.kept.items() if name not in _RANGES}
    rounds, new = [Round(first.painting, kept)], _new(start, kept.values())
    if new:
        start, rounds = _rounds(_without(start, new), rounds)
    return _saved(start, rounds[-1].painting, course)


def paint_once(context: PaintContext) -> Painting:
    """Return the colors of one round; nothing is painted if no allow operator is there."""
    painting = Painting.blank(context.type_graph)
    for step in SEEDING:
        painting = step.run(context, painting)
    if not painting.allow.any():
        return painting
    for step in COLORING:
        painting = step.run(context, painting)
    return painting


def keep_given(context: PaintContext) -> Painting:
    """Return the colors that were given, without what is denied or excluded.

    Nothing is denied inside a group that is low as a whole, nor in the tail that a normalization
    with a low input has no kernel without.
    """
    if context.given is None:
        return spread_deny.run(context, Painting.blank(context.type_graph))
    mark, low = Mark(Color.ALLOW, Reason.GIVEN), context.low
    given = context.given & context.processable
    whole = chain.from_iterable(
        fused.core
        for fused in context.groups
        if not fused.tail and context.fuses(fused, low, low) and given[[*fused.results]].all()
    )
    fused = dict.fromkeys((v for v in whole if given[v]), mark)
    fused |= {v: joined for v, joined in context.joined.items() if given[v]}
    painting = spread_deny.run(context, Painting.blank(context.type_graph).with_marks(fused))
    return painting.with_marks(dict.fromkeys(vertices_in(given & ~painting.deny), mark))


def _by_pass(
    context: PaintContext, painting: Painting, keeping: tuple[PaintPass, ...]
) -> dict[str, dict[int, Mark]]:
    """Return what each pass marks, by its name, and what the user's rules mark, which come last."""
    steps = {step.name: step.run for step in keeping}
    steps |= {f"own {name}": run for name, run in context.own.items()}
    return {name: run(context, painting).changes(painting) for name, run in steps.items()}


def _without(context: PaintContext, kept: Mapping[int, Mark]) -> PaintContext:
    """Return the context of the next round."""
    joined = {v: m for v, m in kept.items() if m.color is Color.ALLOW}
    excluded = {v: m for v, m in kept.items() if v not in joined}
    return context.excluding(excluded).joining(joined)


def _new(context: PaintContext, marks: Iterable[Mapping[int, Mark]]) -> dict[int, Mark]:
    """Return the marks that are neither excluded nor joined already; the last one wins."""
    new_marks: dict[int, Mark] = {}
    for each in marks:
        new_marks |= each
    return {
        vertex: mark
        for vertex, mark in new_marks.items()
        if vertex not in context.excluded
        and (mark.color is not Color.ALLOW or vertex not in context.joined)
    }
