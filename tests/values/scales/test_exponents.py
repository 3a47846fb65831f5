"""Exponents that depend on each other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from amp_rewrite.values.scales.exponents import Exponents


def test_a_circle_with_another_ratio_leaves_zero_alone():
    exponents = Exponents(2)
    exponents.unite(1, 0, 2)
    exponents.unite(1, 0, 3)
    assert exponents.find(0)[0] in exponents.pinned
    assert exponents.find(1)[0] in exponents.pinned


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
