"""Inputs whose absolute error matters, and what computes them."""

from __future__ import annotations

import numpy as np
import pytest
from count_models import Counted, counted

from amp_rewrite.values.counts.count_rules import Fact, Kind
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


WITHIN = '<domain: "my", opset_import: ["" : 22, "my" : 1]>'


def test_a_call_demands_what_is_demanded_inside() -> None:
    functions = f"{WITHIN} f (p, q) => (r) {{ h = Mul(q, q) [inner] c = Cos(h) r = Add(p, c) }}"
    model = counted("y = my.f(x, z)", "float[a] x, float[a] z", functions)
    assert demanded(model) == [("z", ANGLE, "y")]
    assert [demand.name for demand in model.demands] == ["inner"]


def test_an_input_of_another_type_is_not_demanded_of_a_call() -> None:
    functions = f"{WITHIN} f (p, q) => (r) {{ h = Cast<to = 1>(q) m = Mul(p, h) r = Cos(m) }}"
    model = counted("y = my.f(x, i)", "float[a] x, int64[a] i", functions)
    assert demanded(model) == [("x", ANGLE, "y")]


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


DOMAIN = '<domain: "my", opset_import: ["" : 22, "my" : 1]>'


def functions(*texts: str) -> str:
    return " ".join(f"{DOMAIN} {text}" for text in texts)


def kind(fact: Fact | None) -> Kind | None:
    return None if fact is None else fact.kind


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("my.f(c, c)", Kind.COUNT),
        ("my.f(x, x)", Kind.INPUT),
        ("my.f(c, d)", Kind.COUNT),
        ("my.f(d, d)", None),
        ("my.f(x, d)", None),
        ("my.f(b, b)", Kind.FLAG),
    ],
)
def test_a_function_makes_of_counts_what_its_nodes_make(call: str, expected: Kind | None) -> None:
    model = counted(
        f"c = Cast<to = 1>(n) t = Cast<to = 9>(m) b = Cast<to = 1>(t) d = Tanh(x) y = {call}",
        "int64[a] n, int64[a] m, float[a] x",
        functions("f (p, q) => (r) { r = Add(p, q) }"),
    )
    assert kind(model.fact()) is expected


def test_calls_are_told_apart_by_what_they_are_given() -> None:
    model = counted(
        "c = Cast<to = 1>(n) e = Cast<to = 1>(m) u = my.f(c) v = my.f(x) w = my.f(e) d = Tanh(x) "
        "k = my.f(d) y = Sum(u, v, w, k)",
        "int64[a] n, int64[a] m, float[a] x",
        functions("f (p) => (r) { r = Add(p, p) }"),
    )
    kinds = [kind(model.fact(name)) for name in "uvwk"]
    assert kinds == [Kind.COUNT, Kind.INPUT, Kind.COUNT, None]
    assert [model.origin(name) for name in "uvw"] == ["n", "x", "m"]


def test_a_function_may_call_another_one() -> None:
    text = functions(
        "f (p, q) => (r) { h = my.g(q, p) r = Neg(h) }", "g (p, q) => (r) { r = Mul(q, q) }"
    )
    model = counted("c = Cast<to = 1>(n) u = my.f(c, x) v = my.f(x, c) y = Add(u, v)",
                    "int64[a] n, float[a] x", text)  # fmt: skip
    assert (model.origin("u"), model.origin("v")) == ("n", "x")
    assert kind(model.fact("u")) is Kind.COUNT


def test_a_count_in_a_function_has_no_bound() -> None:
    """Next to data, a count that is known to be small is data; inside, nothing says how small."""
    text = functions("f (p) => (r) { s = Size(p) f = Cast<to = 1>(s) d = Tanh(p) r = Add(d, f) }")
    assert kind(counted("y = my.f(x)", "float[4] x", text).fact()) is Kind.COUNT


def test_places_among_the_constants_of_a_function_are_seen() -> None:
    ramp = "k = Constant<value_floats = [0.0, 1.0, 2.0, 3.0, 4.0]>()"
    text = functions(f"f (p) => (r) {{ {ramp} d = Tanh(p) r = Add(k, d) }}")
    found = counted("y = my.f(x)", "float[5] x", text).fact()
    assert found is not None
    assert (found.kind, found.ramp, found.mixed) == (Kind.COORDINATE, True, True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = Mul(p, q) r = Cos(h)", [("x", ANGLE), ("z", ANGLE)]),
        ("h = Tanh(p) r = Cos(h)", []),
        ("h = Tanh(p) m = Mul(h, q) r = Cos(m)", []),
        ("h = Neg(q) r = Floor(h)", [("z", JUMP)]),
        ("h = Neg(q) m = Floor(h) c = Cos(p) r = Add(m, c)", [("x", ANGLE), ("z", JUMP)]),
        ("r = my.g(p, q)", [("z", ANGLE)]),
    ],
)
def test_the_inputs_that_a_function_demands(body: str, expected: list[tuple[str, str]]) -> None:
    text = functions(f"f (p, q) => (r) {{ {body} }}",
                     "g (p, q) => (r) { c = Cos(q) r = Add(c, p) }")  # fmt: skip
    model = counted("y = my.f(x, z)", "float[a] x, float[a] z", text)
    names = model.graph.flat.value_names
    assert sorted((names[d.value], d.noun) for d in model.demands) == sorted(expected)


def test_a_product_with_places_inside_is_followed_to_the_inputs() -> None:
    ramp = "k = Constant<value_floats = [0.0, 1.0, 2.0, 3.0, 4.0]>()"
    text = functions(f"f (p) => (r) {{ {ramp} m = Mul(k, p) r = Cos(m) }}")
    model = counted("y = my.f(x)", "float[5] x", text)
    assert [demand.noun for demand in model.demands] == [ANGLE]
    grown = functions(f"f (p) => (r) {{ {ramp} d = Tanh(p) m = Add(k, d) r = Cos(m) }}")
    assert counted("y = my.f(x)", "float[5] x", grown).demands == []
