"""What element types say of elements, and how they round."""

from __future__ import annotations

import math

import pytest

from amp_rewrite.values.intervals import element_types
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval, between

INF = math.inf


@pytest.mark.parametrize(
    ("name", "share", "tiny", "end"),
    [
        ("float", 2.0**-21, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
        ("float16", 2.0**-8, 2.0**-14, 65504),
        ("bfloat16", 2.0**-5, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
        ("double", 2.0**-21, 0, INF),
    ],
)
def test_floats_round_by_a_few_units(name: str, share: float, tiny: float, end: float) -> None:
    found = element_types.of(f"tensor({name})")
    assert found == (i.ANY, False, share, tiny, end, True)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("bool", 0, 1),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int16", -(2**15), 2**15 - 1),
        ("uint32", 0, 2**32 - 1),
        ("int64", -(2.0**63), 2.0**63),
        ("int4", -8, 7),
        ("uint4", 0, 15),
    ],
)
def test_integers_have_a_range_and_do_not_round(name: str, low: float, high: float) -> None:
    found = element_types.of(f"tensor({name})")
    assert found == (between(low, high), True, 0, 0, INF, True)


@pytest.mark.parametrize("name", ["string", "complex64", "complex128"])
def test_some_elements_are_no_numbers(name: str) -> None:
    found = element_types.of(f"tensor({name})")
    assert found == (i.ANY, False, 0, 0, INF, False)


@pytest.mark.parametrize("type_", [None, "tensor(float8e4m3fn)", "tensor(nothing)"])
def test_of_other_types_nothing_is_known(type_: str | None) -> None:
    assert element_types.of(type_) == (i.ANY, False, 0, 0, INF, True)


def test_a_truth_value_is_told_from_an_integer_by_its_range() -> None:
    assert element_types.of("tensor(bool)").range is i.UNIT


@pytest.mark.parametrize(
    ("low", "high", "is_kept"),
    [
        (-128, 127, True),
        (-3, 5, True),
        (-129, 5, False),
        (-3, 128, False),
        (-300, 300, False),
        (200, 300, False),
    ],
)
def test_integers_out_of_range_wrap_around(low: float, high: float, is_kept: bool) -> None:
    given = between(low, high)
    expected = given if is_kept else between(-128, 127)
    assert element_types.of("tensor(int8)").fitted(given) == expected


def test_floats_out_of_range_become_infinite() -> None:
    half = element_types.of("tensor(float16)")
    assert half.fitted(Interval(-65504, 65504, 2, 3)) == (-65504, 65504, 2, 3)
    assert half.fitted(Interval(-65505, 65505, 2, 3)) == (-INF, INF, 2, 3)
    assert half.fitted(Interval(1, 65505, 1, 3)) == (1, INF, 1, 3)
    assert half.fitted(Interval(-65505, 1, 0, 3)) == (-INF, 1, 0, 3)
