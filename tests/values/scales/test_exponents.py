"""Exponents that depend on each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from amp_rewrite.values.scales.exponents import Exponents


def test_elements_are_free_at_first():
    exponents = Exponents(3)
    assert [exponents.find(e) for e in range(3)] == [(0, 1), (1, 1), (2, 1)]
    assert exponents.find(0)[0] not in exponents.pinned


def test_ratios_multiply_along_a_chain():
    exponents = Exponents(4)
    exponents.unite(1, 0, 2)  # a square
    exponents.unite(2, 1, -1)  # a reciprocal
    exponents.unite(3, 2, Fraction(1, 2))  # a root
    root, of_first = exponents.find(0)
    ratios = [exponents.find(e) for e in range(4)]
    assert {r for r, _ in ratios} == {root}
    assert [Fraction(ratio) / Fraction(of_first) for _, ratio in ratios] == [1, 2, -2, -1]


def test_a_circle_with_another_ratio_leaves_zero_alone():
    exponents = Exponents(2)
    exponents.unite(1, 0, 2)
    exponents.unite(1, 0, 3)
    assert exponents.find(0)[0] in exponents.pinned
    assert exponents.find(1)[0] in exponents.pinned


def test_a_circle_with_the_same_ratio_stays_free():
    exponents = Exponents(3)
    exponents.unite(1, 0, 2)
    exponents.unite(2, 1, Fraction(1, 2))
    exponents.unite(2, 0)
    assert exponents.find(2)[0] not in exponents.pinned


@pytest.mark.parametrize("first", [True, False])
def test_a_pin_holds_for_the_whole_set_before_and_after_it_is_united(first: bool):
    exponents = Exponents(3)
    if first:
        exponents.pin(0, "an input")
    exponents.unite(1, 0)
    exponents.unite(2, 1, -1)
    if not first:
        exponents.pin(0, "an input")
    assert all(exponents.find(e)[0] in exponents.pinned for e in range(3))
    assert {exponents.pinned[exponents.find(e)[0]] for e in range(3)} == {"an input"}


def test_random_ties_agree_with_a_solution_that_is_known():
    rng = np.random.default_rng(0)
    known = [int(k) for k in rng.choice([-4, -2, -1, 1, 2, 4], 200)]
    exponents = Exponents(200)
    for a, b in rng.integers(0, 200, (300, 2)).tolist():
        exponents.unite(a, b, Fraction(known[a], known[b]))
    assert not exponents.pinned
    for element in range(200):
        root, ratio = exponents.find(element)
        assert known[element] == ratio * known[root]


@pytest.mark.parametrize("ratio", [-1, 2, Fraction(1, 2), 3, 1])
def test_ratios_that_are_alike_are_no_ties_of_one(ratio: int | Fraction):
    exponents = Exponents(4)
    exponents.unite(1, 0, ratio)
    exponents.unite(3, 2, ratio)
    joined = exponents.unite(1, 3, ratio)
    assert joined is not None
    root, of_first = exponents.find(0)
    found = [exponents.find(e) for e in range(4)]
    assert {r for r, _ in found} == {root}
    ratios = [Fraction(r) / Fraction(of_first) for _, r in found]
    assert ratios == [1, ratio, Fraction(1) / ratio, 1]
    assert joined.gone != joined.kept == root
    assert exponents.find(joined.gone)[1] == joined.ratio


def test_the_smaller_set_joins_the_larger_one():
    exponents = Exponents(5)
    exponents.unite(0, 1)
    exponents.unite(2, 1)
    assert exponents.unite(3, 4, 2) == (3, 4, 2)
    assert exponents.unite(1, 4, 3) == (4, 1, Fraction(1, 3))
    assert exponents.find(3) == (1, Fraction(2, 3))
    assert exponents.unite(0, 2) is None
    assert len(exponents) == 5


def test_the_first_reason_is_told():
    exponents = Exponents(4)
    exponents.pin(0, "one")
    exponents.pin(0, "two")
    exponents.pin(1, "three")
    exponents.unite(0, 1)
    assert exponents.pinned == {exponents.find(0)[0]: "three"}
    exponents.unite(2, 3, 2)
    exponents.unite(2, 3, -2)
    assert exponents.pinned[exponents.find(2)[0]] == "one value would need two exponents"
