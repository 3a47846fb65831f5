"""Rules of the user as passes: they run beside the built-in ones, and reports name them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from amp_rewrite.errors import AmpError, OptionError
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage
from amp_rewrite.rewriting.paint.painting import Mark, Marks, Painting


def with_rules(context: PaintContext, rules: Iterable[PaintPass]) -> PaintContext:
    """Return a context in which rules of the user count.

    Those of the stage GIVEN are asked here; of two marks for one vertex the first stays.

    Raises:
        OptionError: A rule fails, or two of the stage KEEPING have one name.
    """
    steps = [_named(rule) for rule in rules]
    given = [step for step in steps if step.places[0].stage is Stage.GIVEN]
    asked = [step for step in steps if step not in given]
    own = {step.name: step.run for step in asked}
    if len(own) < len(asked):
        raise OptionError("two rules have one name", found=", ".join(s.name for s in asked))
    kept: dict[int, Mark] = {}
    for step in reversed(given):
        kept |= step.run(context, Painting.blank(context.type_graph)).marks
    return replace(context, own=own, kept=kept)


def _named(rule: PaintPass) -> PaintPass:
    """Return a rule that says its name with what it keeps, and where it fails."""

    def marks(context: PaintContext, painting: Painting) -> Marks:
        try:
            found = rule.run(context, painting).changes(painting)
        except AmpError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise OptionError(f"rule {rule.name} fails", found=text, remedy="mend it") from error
        return {
            vertex: mark._replace(detail=f"{mark.detail or 'kept'} (rule {rule.name})")
            for vertex, mark in found.items()
        }

    return PaintPass(marks, marks, rule.name, rule.places)
