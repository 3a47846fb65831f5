"""Operators that move elements, and those that put new ones among them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from interval_models import NOTHING, bounds_of, near

from amp_rewrite.values.intervals import interval as i
from amp_rewrite.values.intervals.interval import Interval

X = Interval(-5, 3, 1, 4)
"""What is said of x: of some of its elements only the least magnitude is known to be reached."""
SOME = Interval(-5, 3, 1, 1)
SOME_OR_ZERO = Interval(-5, 3, 0, 0)
UPDATED = Interval(2, 9, 2, 2)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Reshape(x, n)", X),
        ("Transpose(x)", X),
        ("Expand(x, n)", X),
        ("Flatten(x)", X),
        ("Identity(x)", X),
        ("Concat<axis = 0>(x)", X),
        ("Gather(x, n)", SOME),
        ("Slice(x, n, n)", SOME),
        ("Split<num_outputs = 1>(x)", SOME),
        ("Split(x, n)", SOME),
        ('Resize<mode = "linear">(x, , f)', SOME),
        ("Resize(x, , f)", SOME),
        ('Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, f, f)', i.ANY),
        ("Dropout(x)", X),
        ("Dropout(x, r)", X),
        ("Dropout(x, r, off)", X),
        ("Dropout(x, r, on)", i.ANY),
        ("Dropout(x, r, b)", i.ANY),
    ],
)
def test_what_is_left_of_one_value(node: str, expected: Interval) -> None:
    inputs = "float[2,3] x, int64[2] n, bool[2] c, float[2] f, float r, bool b, int64 d"
    constants = "bool off = {0}, bool on = {1}"
    found = bounds_of(f"y = {node}", inputs, {"x": X}, constants=constants)
    assert found == near(expected)


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("Pad<pads = [1, 1]>(x)", 10, (0, 6)),
        ("Pad<pads = [1, 1], value = 7.0>(x)", 10, (2, 7)),
        ('Pad<pads = [1, 1], value = 7.0, mode = "edge">(x)', 10, (2, 6)),
        ("Pad(x, p)", 11, (0, 6)),
        ("Pad(x, p, c)", 11, (2, 8)),
        ('Pad<mode = "reflect">(x, p, c)', 11, (2, 6)),
        ("Pad(x, p, c)", 21, (2, 8)),
        ('Pad<mode = "constant">(x, p)', 21, (0, 6)),
    ],
)
def test_a_pad_puts_one_number_around(node: str, opset: int, expected: Any) -> None:
    found = bounds_of(
        f"y = {node}",
        "float[2] x",
        {"x": (2, 6)},
        opset=opset,
        constants="int64[2] p = {-1, 1}, float c = {8}",
    )
    low, high = expected
    assert found == near(Interval(low, high, max(low, 0), max(low, 0)))


@pytest.mark.parametrize(
    ("node", "opset", "expected"),
    [
        ("ScatterElements(x, n, u)", 18, UPDATED),
        ('ScatterElements<reduction = "none">(x, n, u)', 18, UPDATED),
        ('ScatterElements<reduction = "max">(x, n, u)', 18, UPDATED),
        ('ScatterElements<reduction = "add">(x, n, u)', 18, i.ANY),
        ('ScatterElements<reduction = "mul">(x, n, u)', 18, i.ANY),
        ("ScatterND(x, n, u)", 18, UPDATED),
    ],
)
def test_updates_stand_among_the_data(node: str, opset: int, expected: Any) -> None:
    given = {"x": Interval(2, 6, 2, 6), "u": 9}
    inputs = "float[2] x, int64[2] n, float[2] u"
    found = bounds_of(f"y = {node}", inputs, given, opset=opset)
    assert found == near(expected)


@pytest.mark.parametrize(
    ("source", "target", "made", "x", "expected"),
    [
        ("float", 1, "float", X, X),
        ("float", 11, "double", X, X),
        ("float", 6, "int32", (-2.5, 3.7), (-2, 3)),
        ("float", 2, "uint8", (-2.5, 3.7), (0, 255)),
        ("float", 6, "int32", (0, math.inf), (-(2.0**31), 2.0**31 - 1)),
        ("int32", 7, "int64", X, X),
        ("int32", 3, "int8", (-200, 3), (-128, 127)),
        ("float", 9, "bool", X, 1),
        ("float", 9, "bool", (2, 3), 1),
        ("float", 9, "bool", (-3, -2), 1),
        ("float", 9, "bool", (0, 3), (0, 1)),
        ("float", 9, "bool", (-3, 0), (0, 1)),
        ("bool", 1, "float", (0, 1), (0, 1)),
    ],
)
def test_a_cast_keeps_what_its_type_holds(
    source: str, target: int, made: str, x: Any, expected: Any
) -> None:
    options = {"made": f"{made}[2] y"}
    found = bounds_of(f"y = Cast<to = {target}>(x)", f"{source}[2] x", {"x": x}, **options)
    assert found == near(expected)
    like = bounds_of("y = CastLike(x, z)", f"{source}[2] x, {made}[2] z", {"x": x}, **options)
    assert like == near(expected)


def test_a_cubic_interpolation_along_axes_of_which_none_is_known_is_not_bounded() -> None:
    body = 'a = custom.F(x) b = Clip(a, l, h) y = Resize<mode = "cubic">(b, , s)'
    constants = "float l = {0}, float h = {1}"
    found = bounds_of(body, "float[2] x, float[M] s", constants=constants)
    assert tuple(found) == NOTHING


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
