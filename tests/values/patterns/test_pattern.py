"""Patterns are expressions: terms that say the same are equal, and lead from anchor to root."""

from __future__ import annotations

import pytest

from amp_rewrite.values.patterns.pattern import Number, Op, Pattern, Value

X = Value("x")


@pytest.mark.parametrize("term", [X, Number(2), Op("Mul", X), Pattern("P", Op("Mul", X), "Mul")])
def test_terms_do_not_change(term: object) -> None:
    field = next(iter(type(term).__annotations__))
    with pytest.raises(AttributeError):
        setattr(term, field, "other")


def test_an_anchor_is_part_of_the_expression() -> None:
    with pytest.raises(ValueError, match="pattern P has no Erf"):
        Pattern("P", Op("Mul", X, Op("Exp", X)), "Erf").path()
