"""What element types say of elements, and how they round."""

from __future__ import annotations

import math

import pytest

from amp_rewrite.values.intervals import element_types
from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import between

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


@pytest.mark.parametrize("name", ["string", "complex64", "complex128"])
def test_some_elements_are_no_numbers(name: str) -> None:
    found = element_types.of(f"tensor({name})")
    assert found == (i.ANY, False, 0, 0, INF, False)


def test_a_truth_value_is_told_from_an_integer_by_its_range() -> None:
    assert element_types.of("tensor(bool)").range is i.UNIT


@pytest.mark.parametrize(
    ("low", "high", "is_kept"),
    [
        (-128, 127, True),
        (-3, 5, True),
        (-129, 5, False),
        (-3, 128, False),
    ],
)
def test_integers_out_of_range_wrap_around(low: float, high: float, is_kept: bool) -> None:
    given = between(low, high)
    expected = given if is_kept else between(-128, 127)
    assert element_types.of("tensor(int8)").fitted(given) == expected
