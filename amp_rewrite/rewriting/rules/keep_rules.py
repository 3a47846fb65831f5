"""Rules that users hand in: functions under `@keep`, as the built-in ones are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage

_EXPECTED = "functions under @amp_rewrite.rules.keep, in a list"


def checked_rules(rules: object) -> tuple[PaintPass, ...]:
    """Return rules as options hold them.

    Raises:
        OptionError: They are not several, or one is no rule.
    """
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        found = rules.name if isinstance(rules, PaintPass) else repr(rules)
        raise OptionError("rules must be a list", found=found, expected=_EXPECTED)
    checked: list[PaintPass] = []
    for rule in rules:
        if not isinstance(rule, PaintPass):
            found = f"an object of type {type(rule).__name__}"
            raise OptionError("a rule has no decorator", found=found, expected=_EXPECTED)
        if not rule.places or rule.places[0].stage not in (Stage.GIVEN, Stage.KEEPING):
            what = f"rule {rule.name} is a pass of another kind"
            raise OptionError(what, expected="a rule of the stage GIVEN or KEEPING")
        checked.append(rule)
    return tuple(checked)
