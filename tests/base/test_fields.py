"""What an object that was read from JSON must hold: what fits, and how the first misfit is told."""

from __future__ import annotations

from typing import Any

import pytest

from amp_rewrite.base.fields import (
    NUMBER,
    OBJECT,
    SWITCH,
    TEXT,
    Check,
    list_of,
    mapping_to,
    object_of,
    one_of,
    or_null,
    whole,
)

POINT = object_of({"x": whole(0), "name": or_null(TEXT)}, optional=("name",))

FITTING: list[tuple[Check, Any]] = [
    (TEXT, ""),
    (SWITCH, False),
    (NUMBER, float("inf")),
    (NUMBER, 3),
    (OBJECT, {}),
    (whole(0), 0),
    (whole(1, 2), 2),
    (one_of("a", "b"), "b"),
    (or_null(TEXT), None),
    (list_of(TEXT), []),
    (mapping_to(TEXT), {"a": "b"}),
    (POINT, {"x": 1}),
    (POINT, {"x": 1, "name": None}),
    (object_of({}, more=True), {"a": 1}),
]


@pytest.mark.parametrize(("check", "found"), FITTING)
def test_what_fits_is_let_through(check: Check, found: Any) -> None:
    assert check(found, "key") is None


MISFITS: list[tuple[Check, Any, tuple[str, str, str]]] = [
    (TEXT, None, ("k", "null", "a string")),
    (SWITCH, 1, ("k", "1", "true or false")),
    (NUMBER, True, ("k", "true", "a number")),
    (NUMBER, float("nan"), ("k", "nan", "a number")),
    (whole(0), True, ("k", "true", "an integer of at least 0")),
    (whole(1, 2), 3, ("k", "3", "an integer from 1 to 2")),
    (whole(0), 1.0, ("k", "1.0", "an integer of at least 0")),
    (one_of("a", "b"), [], ("k", "a list of 0", "'a' or 'b'")),
    (or_null(TEXT), 3, ("k", "3", "a string, or null")),
    (or_null(list_of(TEXT)), [3], ("k[0]", "3", "a string")),
    (list_of(TEXT), {}, ("k", "an object of 0", "a list")),
    (list_of(TEXT), ["a", 3], ("k[1]", "3", "a string")),
    (mapping_to(TEXT), [], ("k", "a list of 0", "an object")),
    (mapping_to(TEXT), {"a": 1}, ("k.a", "1", "a string")),
    (POINT, 3, ("k", "3", "an object")),
    (POINT, {}, ("k.x", "nothing", "an integer of at least 0")),
    (POINT, {"x": 1, "y": "z"}, ("k.y", "'z'", "one of x, name")),
    (TEXT, 10**1000, ("k", "an integer of 3322 bits", "a string")),
    (SWITCH, "a" * 100, ("k", "'" + "a" * 59, "true or false")),
]


@pytest.mark.parametrize(("check", "found", "expected"), MISFITS)
def test_a_misfit_is_told_by_key_by_what_was_found_and_by_what_was_expected(
    check: Check, found: Any, expected: tuple[str, str, str]
) -> None:
    assert check(found, "k") == expected
