"""What is known of numbers, and what is known of numbers that are mixed."""

from __future__ import annotations

import numpy as np

from amp_rewrite.values.counts.count_rules import Fact, Kind, Operand, combined

COUNT = Fact(Kind.COUNT, 7, True)
FLAG = Fact(Kind.FLAG, 10, True)
DATA, LONG = Operand(None), Operand(None, is_long=True)


def constant(*elements: float) -> Operand:
    return Operand(None, np.array(elements))


def test_kinds_are_ordered_from_flags_to_counts() -> None:
    assert sorted(Kind) == [Kind.FLAG, Kind.INPUT, Kind.COORDINATE, Kind.COUNT]
    assert len({*Kind}) == 4


def test_nothing_is_whole_a_ramp_or_mixed_unless_that_is_said() -> None:
    fact = Fact(Kind.COUNT, 3)
    assert (fact.whole, fact.ramp, fact.mixed) == (False, False, False)
    assert (DATA.constant, DATA.is_long, DATA.is_constant) == (None, False, False)


def test_nothing_is_known_of_a_result_of_data() -> None:
    assert combined([DATA, constant(1)], Kind.COUNT) is None
