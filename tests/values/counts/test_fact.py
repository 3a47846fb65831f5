"""What is known of numbers, and what is known of numbers that are mixed."""

from __future__ import annotations

import numpy as np
import pytest

from amp_rewrite.values.counts.fact import Fact, Kind, Operand, combined, strongest, united

COUNT = Fact(Kind.COUNT, 7, True)
PLACE = Fact(Kind.COORDINATE, 8, ramp=True)
MOVED = Fact(Kind.COORDINATE, 9, ramp=True, mixed=True)
FLAG = Fact(Kind.FLAG, 10, True)
DATA, LONG = Operand(None), Operand(None, is_long=True)


def constant(*elements: float) -> Operand:
    return Operand(None, np.array(elements))


def test_kinds_are_ordered_from_flags_to_counts() -> None:
    assert sorted(Kind) == [Kind.FLAG, Kind.INPUT, Kind.COORDINATE, Kind.COUNT]
    assert len({*Kind}) == 4


def test_a_fact_of_another_kind_is_not_whole_and_keeps_the_rest() -> None:
    fact = Fact(Kind.COUNT, 3, True, True, True)
    assert fact.of_kind(Kind.INPUT) == Fact(Kind.INPUT, 3, False, True, True)


def test_nothing_is_whole_a_ramp_or_mixed_unless_that_is_said() -> None:
    fact = Fact(Kind.COUNT, 3)
    assert (fact.whole, fact.ramp, fact.mixed) == (False, False, False)
    assert (DATA.constant, DATA.is_long, DATA.is_constant) == (None, False, False)


@pytest.mark.parametrize(
    ("ramp", "mixed", "is_place"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_places_are_a_ramp_in_which_data_have_no_part(
    ramp: bool, mixed: bool, is_place: bool
) -> None:
    fact = Fact(Kind.COORDINATE, 3, ramp=ramp, mixed=mixed)
    assert fact.is_place is is_place
    assert Operand(fact, is_constant=True).is_constant_place is is_place
    assert not Operand(fact).is_constant_place


@pytest.mark.parametrize(
    ("operand", "is_plain", "is_data"),
    [
        (DATA, True, True),
        (LONG, True, False),
        (constant(1), False, False),
        (Operand(COUNT), False, False),
        (Operand(COUNT, is_long=True), False, False),
    ],
)
def test_data_are_what_is_neither_known_nor_constant(
    operand: Operand, is_plain: bool, is_data: bool
) -> None:
    assert (operand.is_plain, operand.is_data) == (is_plain, is_data)


def test_a_constant_of_which_nothing_is_known_is_no_place() -> None:
    assert not Operand(None, is_constant=True).is_constant_place


def test_the_kind_of_an_operand_is_that_of_its_fact() -> None:
    assert Operand(COUNT).kind is Kind.COUNT
    assert Operand(FLAG).kind is Kind.FLAG
    assert DATA.kind is None


@pytest.mark.parametrize(
    ("operand", "whole", "is_flag"),
    [
        (Operand(COUNT), True, False),
        (Operand(PLACE), False, False),
        (Operand(FLAG), True, True),
        (DATA, False, False),
        (constant(-1, 0, 1), True, True),
        (constant(2), True, False),
        (constant(0, 2), True, False),
        (constant(-2, 0), True, False),
        (constant(0.5, 1), False, False),
        (constant(-0.5), False, False),
    ],
)
def test_which_operands_are_whole_and_which_are_flags(
    operand: Operand, whole: bool, is_flag: bool
) -> None:
    assert (operand.whole, operand.is_flag) == (whole, is_flag)


def test_the_strongest_fact_is_the_first_of_the_largest_kind() -> None:
    later = Fact(Kind.COUNT, 11)
    assert strongest([Operand(FLAG), DATA, Operand(COUNT), Operand(later)]) is COUNT
    assert strongest([Operand(COUNT), Operand(PLACE)]) is COUNT
    assert strongest([DATA, constant(1)]) is None
    assert strongest([]) is None


@pytest.mark.parametrize(
    ("operands", "ramp", "mixed"),
    [
        ([Operand(COUNT), Operand(FLAG)], False, False),
        ([Operand(COUNT), Operand(PLACE)], True, False),
        ([Operand(COUNT), DATA], False, True),
        ([Operand(COUNT), LONG], False, False),
        ([Operand(COUNT), constant(1)], False, False),
        ([Operand(COUNT), Operand(MOVED)], True, True),
    ],
)
def test_a_result_is_mixed_where_data_have_a_part_in_it(
    operands: list[Operand], ramp: bool, mixed: bool
) -> None:
    found = combined(operands, Kind.COORDINATE)
    assert found == Fact(Kind.COORDINATE, COUNT.origin, False, ramp, mixed)
    whole = combined(operands, Kind.COUNT, whole=True)
    assert whole == Fact(Kind.COUNT, COUNT.origin, True, ramp, mixed)


def test_nothing_is_known_of_a_result_of_data() -> None:
    assert combined([DATA, constant(1)], Kind.COUNT) is None


def test_what_is_known_twice_is_of_the_larger_kind_and_the_first_of_two_alike() -> None:
    assert united(FLAG, COUNT).origin == united(COUNT, FLAG).origin == COUNT.origin
    assert united(FLAG, COUNT).kind is united(COUNT, FLAG).kind is Kind.COUNT
    assert united(PLACE, MOVED).origin == PLACE.origin
    assert united(MOVED, PLACE).origin == MOVED.origin


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_both_have_to_be_whole_and_one_to_be_a_ramp_or_mixed(one: bool, other: bool) -> None:
    parts = [Fact(Kind.COUNT, 3, said, said, said) for said in (one, other)]
    assert united(*parts) == Fact(Kind.COUNT, 3, one and other, one or other, one or other)
