"""Patterns are expressions: terms that say the same are equal, and lead from anchor to root."""

from __future__ import annotations

import pytest

from amp_rewrite.values.patterns.library import PATTERNS
from amp_rewrite.values.patterns.pattern import Number, Op, Pattern, Value

X = Value("x")


def test_terms_that_say_the_same_are_equal() -> None:
    def term(name: str = "x", number: float = 2, is_tail: bool = False) -> Op:
        return Op("Pow", Value(name), Number(number), is_tail=is_tail)

    assert term() == term()
    assert len({term(), term(), term("z"), term(number=3), term(is_tail=True)}) == 4
    assert Pattern("P", term(), "Pow") == Pattern("P", term(), "Pow")
    assert hash(Pattern("P", term(), "Pow")) == hash(Pattern("P", term(), "Pow"))


def test_a_term_asks_nothing_unless_it_says_so() -> None:
    term = Op("Mul", X, Number(2))
    assert (term.op_type, term.operands, term.is_tail, term.holds) == (
        "Mul",
        (X, Number(2)),
        False,
        None,
    )
    assert X.holds is None


@pytest.mark.parametrize("term", [X, Number(2), Op("Mul", X), Pattern("P", Op("Mul", X), "Mul")])
def test_terms_do_not_change(term: object) -> None:
    field = next(iter(type(term).__annotations__))
    with pytest.raises(AttributeError):
        setattr(term, field, "other")


@pytest.mark.parametrize(
    ("root", "path"),
    [
        (Op("Erf", X), ()),
        (Op("Mul", X, Op("Erf", X)), ("Mul",)),
        (Op("Mul", Op("Erf", X), X), ("Mul",)),
        (Op("Mul", Op("Add", Number(1), Op("Erf", Op("Div", X))), X), ("Add", "Mul")),
        (Op("Mul", Op("Add", Op("Erf", X)), Op("Erf", X)), ("Add", "Mul")),
        (Op("Mul", Op("Sub", X), Op("Add", Op("Exp", Op("Erf", X)))), ("Exp", "Add", "Mul")),
    ],
)
def test_the_search_goes_from_the_anchor_to_the_root(root: Op, path: tuple[str, ...]) -> None:
    assert Pattern("P", root, "Erf").path() == path


def test_an_anchor_is_part_of_the_expression() -> None:
    with pytest.raises(ValueError, match="pattern P has no Erf"):
        Pattern("P", Op("Mul", X, Op("Exp", X)), "Erf").path()


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_every_pattern_has_its_anchor(pattern: Pattern) -> None:
    assert (pattern.anchor, *pattern.path())[-1] == pattern.root.op_type
