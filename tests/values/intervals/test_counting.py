"""Shapes, indices, counts and random numbers."""

from __future__ import annotations

from typing import Any

import pytest
from interval_models import bounds_of, near

from amp_rewrite.values.intervals.interval import Interval


@pytest.mark.parametrize(
    ("node", "inputs", "expected"),
    [
        ("Shape(x)", "float[2,3,5] x", (2, 5)),
        ("Shape<start = 1>(x)", "float[2,3,5] x", (3, 5)),
        ("Shape<end = 2>(x)", "float[2,3,5] x", (2, 3)),
        ("Shape<start = -1>(x)", "float[2,3,5] x", (5, 5)),
        ("Shape<start = 1, end = 2>(x)", "float[2,3,5] x", (3, 3)),
        ("Shape<start = 1, end = 1>(x)", "float[2,3,5] x", (0, 0)),
        ("Shape(x)", "float x", (0, 0)),
        ("Size(x)", "float[2,3,5] x", (30, 30)),
        ("Size(x)", "float x", (1, 1)),
        ("ArgMax(x)", "float[2,3,5] x", (0, 1)),
        ("ArgMin<axis = 1>(x)", "float[2,3,5] x", (0, 2)),
        ("ArgMax<axis = -1>(x)", "float[2,3,5] x", (0, 4)),
        ("ArgMax(x)", "float[1,3] x", (0, 0)),
    ],
)
def test_lengths_and_indices_are_bounded_by_shapes(node: str, inputs: str, expected: Any) -> None:
    assert bounds_of(f"y = {node}", inputs, made="int64[N] y")[:2] == expected


@pytest.mark.parametrize(
    ("start", "limit", "delta", "expected"),
    [
        (1, 10, 2, Interval(1, 9, 1, 9)),
        (1, 9, 2, Interval(1, 7, 1, 7)),
        (5, 5, 1, 0),
        (5, 4, 1, 0),
        (2, 7, 0, (2, 7)),
        ((2, 3), 7, 1, (2, 7)),
        ((5, 8), (2, 3), (-2, -1), (2, 8)),
    ],
)
def test_a_range_stays_between_its_ends(start: Any, limit: Any, delta: Any, expected: Any) -> None:
    inputs = "float s, float l, float d"
    found = bounds_of("y = Range(s, l, d)", inputs, {"s": start, "l": limit, "d": delta})
    assert found == near(expected)
