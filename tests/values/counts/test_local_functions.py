"""What functions of a model make of counts, and which of their inputs they demand."""

from __future__ import annotations

import pytest
from count_models import counted

from amp_rewrite.values.counts.fact import Fact, Kind
from amp_rewrite.values.counts.find_demands import ANGLE, JUMP

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
