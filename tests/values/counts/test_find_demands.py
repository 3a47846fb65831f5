"""Inputs whose absolute error matters, and what computes them."""

from __future__ import annotations

import numpy as np
import pytest
from count_models import Counted, counted

from amp_rewrite.values.counts.count_rules import Fact
from amp_rewrite.values.counts.find_demands import (
    ANGLE,
    COORDINATES,
    JUMP,
    PLACE,
    find_differences,
    follow_demands,
)

RAMP = np.arange(8, dtype=np.float32)


def demanded(model: Counted) -> list[tuple[str, str, str | None]]:
    """Return of each demand the value, what it is, and what the node that reads it makes."""
    names = model.graph.flat.value_names
    return [(names[d.value], d.noun, model.maker(d.vertex)) for d in model.demands]


def differences(model: Counted) -> list[tuple[str, str, str | None]]:
    """Return the same of the differences of places."""
    names, found = model.graph.flat.value_names, find_differences(model.graph, model.counts)
    assert {d.name for d in found} <= set(model.graph.flat.node_names)
    return [(names[d.value], d.noun, model.maker(d.vertex)) for d in found]


def followed(
    model: Counted, harmless: str = ""
) -> tuple[dict[str | None, tuple[str, str | None]], dict[str, str]]:
    """Return by value who demands it and why, and by input who does; one value is harmless."""
    names, end = model.graph.flat.value_names, model.vertex(harmless) if harmless else None

    def is_harmless(vertex: int, fact: Fact, is_small_enough: bool) -> bool:
        return vertex == end

    steps, inputs = follow_demands(model.graph, model.demands, model.counts, is_harmless)
    return (
        {
            model.maker(v): (model.maker(s.demand.vertex) or "", model.maker(s.because))
            for v, s in steps.items()
        },
        {names[v]: model.maker(d.vertex) or "" for v, d in inputs.items()},
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Cos(x)", [("x", ANGLE, "y")]),
        ("y = Floor(x)", [("x", JUMP, "y")]),
        ("b = Greater(x, z) y = Cast<to = 1>(b)", [("x", JUMP, "b"), ("z", JUMP, "b")]),
        ("y = GridSample(x, z)", [("z", COORDINATES, "y")]),
        ("s = RoiAlign(x, z, i) y = Neg(s)", [("z", COORDINATES, "s")]),
        ("s = AffineGrid(x, i) y = Neg(s)", [("x", COORDINATES, "s")]),
        ("c = Cast<to = 7>(x) y = Cast<to = 1>(c)", [("x", JUMP, "c")]),
        ("c = Cast<to = 11>(x) y = Cast<to = 1>(c)", []),
        ("y = Cast<to = 1>(i)", []),
        ("y, p = TopK(x, i)", [("x", JUMP, "y")]),
        ("y = OneHot(i, k, z)", [("z", JUMP, "y")]),
        ("y = Add(x, z)", []),
        ("y = MatMul(x, z)", []),
        ("s = Sin(x) c = Ceil(z) y = Add(s, c)", [("x", ANGLE, "s"), ("z", JUMP, "c")]),
    ],
)
def test_which_inputs_must_have_a_small_absolute_error(
    body: str, expected: list[tuple[str, str, str]]
) -> None:
    model = counted(body, "float[a] x, float[a] z, int64[b] i, int64 k")
    assert demanded(model) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Sub(m, k)", ["m", "k"]),
        ("y = Sub(k, m)", ["k", "m"]),
        ("h = Add(k, k) y = Sub(h, k)", []),
        ("h = Add(m, x) y = Sub(h, m)", []),
        ("y = Sub(k, x)", []),
        ("y = Sub(x, k)", []),
        ("y = Sub(m, f)", []),
        ("y = Add(m, k)", []),
    ],
)
def test_what_remains_of_places_that_were_moved_is_small(body: str, expected: list[str]) -> None:
    front = "d = Tanh(x) m = Add(k, d) f = Cast<to = 1>(i)"
    model = counted(f"{front} {body}", "float[8] x, int64[8] i", k=RAMP)
    assert differences(model) == [(name, PLACE, "y") for name in expected]


def test_every_difference_is_told() -> None:
    body = "d = Tanh(x) m = Add(k, d) s = Sub(x, d) a = Sub(m, k) b = Sub(k, m) y = Add(a, b)"
    found = differences(counted(body, "float[8] x", k=RAMP))
    assert [(value, maker) for value, _, maker in found] == [
        ("m", "a"), ("k", "a"), ("k", "b"), ("m", "b")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("d = Tanh(f) h = Mul(f, f) y = Cos(h)", {"h", "f"}),
        ("d = Tanh(f) h = Add(f, d) y = Cos(h)", {"h", "f"}),
        ("d = Tanh(f) y = Cos(d)", set()),
        ("b = Cast<to = 9>(i) c = Cast<to = 1>(b) h = Add(c, c) y = Cos(h)", set()),
        ("b = Cast<to = 9>(i) c = Cast<to = 1>(b) h = Add(c, half) y = Cos(h)", set()),
        ("y = Cos(f)", {"f"}),
    ],
)
def test_demands_end_at_data_and_flags(body: str, expected: set[str]) -> None:
    model = counted(
        f"f = Cast<to = 1>(n) {body}", "int64[a] i, int64[a] n", half=np.array(0.5, np.float32)
    )
    assert followed(model)[0].keys() == expected


def test_demands_end_where_rounding_does_no_harm() -> None:
    model = counted("f = Cast<to = 1>(i) h = Mul(f, f) g = Neg(h) y = Cos(g)", "int64[a] i")
    assert followed(model)[0].keys() == {"g", "h", "f"}
    assert followed(model, "h")[0].keys() == {"g"}
    assert followed(model, "g")[0].keys() == set()


def test_a_value_of_a_loop_is_demanded_of_the_node_that_holds_it() -> None:
    body = """f = Cast<to = 1>(n) k = Constant<value_int = 2>() t = Cast<to = 9>(k)
        e, c = Loop(k, t, f) <body = b (int64 i, bool on, float[a] s)
            => (bool go, float[a] u, float[a] v)
        { go = Identity(on) u = Add(s, s) v = Cos(s) }> y = ReduceSum(c)"""
    steps, _ = followed(counted(body, "int64[a] n"))
    assert steps["e"] == ("v", "v")
    assert steps["f"] == ("v", "e")
    assert steps["u"] == ("v", "e")
