"""What kind of numbers a model computes, node by node."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from count_models import Counted, counted

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.counts.count_rules import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.intervals.propagate import intervals_of

CONSTANTS = """float half = {0.5}, float two = {2}, float[1] low = {-10000}, int64[1] axis = {0},
    int64 zero = {0}, int64 one = {1}, float[1,4] row = {1, 0.1, 0.01, 0.001},
    float[2,2] triangle = {1, 1, 0, 1},
    float[4,4] layer = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7.5},
    float[4,4] sums = {1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1},
    float[3,1] turn = {0.5, 0.25, -0.5},
    double wide = {0.5}"""


def kind_of(body: str, inputs: str, value: str = "y") -> Kind | None:
    """Return the kind of a value; float32 inputs are inputs of the model."""
    source = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g ({inputs}) => (float[a] y) <{CONSTANTS}>'
        f" {{ {body} }}"
    )
    graph = build_type_graph(read_flat(source))
    intervals = intervals_of(graph)
    given = {v: Fact(Kind.INPUT, v) for v in graph.flat.main.inputs if graph.is_retyped(v)}
    found = Counts(graph, lambda v: intervals[v].magnitude, given)
    (number,) = graph.flat.values_called(value)
    fact = found[number]
    return None if fact is None else fact.kind


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("int64", Kind.COUNT), ("int32", Kind.COUNT), ("uint64", Kind.COUNT), ("bool", Kind.FLAG),
        ("int8", None), ("uint8", None), ("int16", None), ("uint16", None), ("float16", None),
    ],
)  # fmt: skip
def test_types_tell_counts_from_data(type_: str, kind: Kind | None) -> None:
    assert kind_of("y = Cast<to = 1>(n)", f"{type_}[a] n") is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("y = Add(f, half)", Kind.COUNT),
        ("y = Sub(half, f)", Kind.COUNT),
        ("y = Mul(f, half)", Kind.COUNT),
        ("y = Div(f, half)", Kind.COUNT),
        ("y = Div(half, f)", Kind.COUNT),
        ("y = Reciprocal(f)", Kind.COUNT),
        ("y = Clip(f, half)", Kind.COUNT),
        ("y = Floor(f)", Kind.COUNT),
        ("y = Pow(f, two)", Kind.COUNT),
        ("y = CumSum(f, zero)", Kind.COUNT),
        ("y = ReduceMean(f, axis)", Kind.COUNT),
        ("y = Max(f, half)", Kind.COUNT),
        ("g = Softmax(f) y = Add(f, g)", Kind.COUNT),
        ("y = Div(f, f)", Kind.COORDINATE),
        ("y = Sqrt(f)", Kind.COORDINATE),
        ("y = Log(f)", Kind.COORDINATE),
        ("y = Pow(f, zero)", Kind.COUNT),
        ("y = Pow(two, n)", None),
        ("y = Div(f, zero)", None),
        ("y = Pow(two, f)", Kind.COORDINATE),
        ("s = Sqrt(f) g = Tanh(f) y = Add(s, g)", Kind.COORDINATE),
        ("g = Softmax(f) y = Mul(f, g)", None),
        ("g = Softmax(f) y = Div(g, f)", None),
        ("y = Tanh(f)", None),
        ("y = Cos(f)", None),
        ("y = Sign(f)", None),
    ],
)
def test_arithmetic_on_counts(body: str, kind: Kind | None) -> None:
    assert kind_of(f"f = Cast<to = 1>(n) {body}", "int64[a] n") is kind


def test_a_count_without_a_bound_is_not_a_small_one() -> None:
    body = "f = Cast<to = 1>(n) h = Tanh(f) g = Mul(f, infinite) y = Add(h, g)"
    constants = "infinite = Constant<value_float = inf>()"
    assert kind_of(f"{constants} {body}", "int64[a] n") is Kind.COUNT


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("f = Cast<to = 1>(n) y = MatMul(f, row)", Kind.COUNT),
        ('f = Cast<to = 1>(n) y = Einsum<equation = "ab,cd->abcd">(f, row)', Kind.COUNT),
        ("r = Reshape(n, four) f = Cast<to = 1>(r) y = MatMul(f, layer)", None),
        ("t = Concat<axis = 1>(n, n) f = Cast<to = 1>(t) y = MatMul(f, triangle)", Kind.COUNT),
        ("t = Concat<axis = 1>(n, n, n) f = Cast<to = 1>(t) y = MatMul(f, turn)", Kind.COUNT),
        (
            "t = Concat<axis = 1>(n, n, n, n) f = Cast<to = 1>(t) s = MatMul(f, sums) "
            "y = MatMul(s, sums)",
            Kind.COUNT,
        ),
    ],
)
def test_long_products_with_weights_are_layers(body: str, kind: Kind | None) -> None:
    four = "four = Constant<value_ints = [1, 4]>()" if "four" in body else ""
    assert kind_of(f"{four} {body}", "int64[4,1] n") is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("s = Shape(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = Size(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = ArgMax(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = NonZero(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = Cast<to = 7>(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = Size(x) d = Cast<to = 11>(s) e = Mul(d, wide) y = Cast<to = 1>(e)", Kind.COUNT),
        ("d = Cast<to = 11>(x) y = Cast<to = 1>(d)", None),
        ("b = Greater(x, half) i = Cast<to = 7>(b) y = Cast<to = 1>(i)", Kind.FLAG),
        ("b = Greater(x, half) i = Cast<to = 7>(b) r = CumSum(i, zero) y = Cast<to = 1>(r)",
         Kind.COUNT),
        ("b = Greater(x, half) i = Cast<to = 7>(b) r = Sub(one, i) y = Cast<to = 1>(r)", Kind.FLAG),
        ("y = Mul(x, half)", Kind.INPUT),
        ("f = Cast<to = 1>(x) y = Cast<to = 1>(f)", Kind.INPUT),
        ("h = Tanh(x) y = Add(x, h)", None),
        ("s = Size(x) f = Cast<to = 1>(s) y = Mul(x, f)", Kind.COUNT),
        ("h = Tanh(x) c = Constant<value_int = 64>() f = Cast<to = 1>(c) y = Add(h, f)", None),
        ("h = Tanh(x) c = Constant<value_int = 640>() f = Cast<to = 1>(c) y = Add(h, f)",
         Kind.COUNT),
    ],
)  # fmt: skip
def test_where_counts_begin(body: str, kind: Kind | None) -> None:
    assert kind_of(body, "float[a] x") is kind


def kind(model: Counted, value: str = "y") -> Kind | None:
    fact = model.fact(value)
    return None if fact is None else fact.kind


RAMP = np.arange(8)
NUMBERS = {"five": np.array(5), "ramp": RAMP, "grid": RAMP.astype(np.float32)}


def known(body: str, inputs: str = "int64[8] n, float[8] x") -> tuple[object, ...] | None:
    """Return kind, origin, and whether y is whole, a ramp and mixed."""
    model = counted(f"f = Cast<to = 1>(n) d = Tanh(x) {body}", inputs, **NUMBERS)
    fact = model.fact()
    return None if fact is None else (fact.kind, model.origin(), *fact[2:])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity(f)", (Kind.COUNT, "n", True, False, False)),
        ("y = CastLike(n, x)", (Kind.COUNT, "n", True, False, False)),
        ("y = Add(f, d)", (Kind.COUNT, "n", False, False, True)),
        ("y = Add(f, f)", (Kind.COUNT, "n", True, False, False)),
        ("y = Add(f, x)", (Kind.COUNT, "n", False, False, False)),
        ("y = Range(x, x, x)", (Kind.COUNT, "y", False, True, False)),
        ("y = Cast<to = 1>(ramp)", (Kind.COUNT, "ramp", True, True, False)),
        ("y = Cast<to = 1>(five)", (Kind.COUNT, "five", True, False, False)),
        ("s = Add(ramp, five) y = Cast<to = 1>(s)", (Kind.COUNT, "ramp", True, True, False)),
        ("s = Div(n, five) y = Cast<to = 1>(s)", (Kind.COUNT, "n", True, False, False)),
        ("s = Div(n, n) y = Cast<to = 1>(s)", (Kind.COUNT, "n", True, False, False)),
        ("s = Range(n, n, n) y = Cast<to = 1>(s)", (Kind.COUNT, "s", True, True, False)),
        ("s = ArgMax(x) y = Cast<to = 1>(s)", (Kind.COUNT, "s", True, False, False)),
        ("e = Cast<to = 11>(n) y = Cast<to = 1>(e)", (Kind.COUNT, "n", True, False, False)),
        ("e = Cast<to = 11>(n) s = Div(e, e) y = Cast<to = 1>(s)",
         (Kind.COORDINATE, "n", False, False, False)),
        ("e = Cast<to = 11>(n) s = Range(e, e, e) y = Cast<to = 1>(s)",
         (Kind.COUNT, "s", False, True, False)),
        ("b = Cast<to = 9>(x) y = Cast<to = 1>(b)", (Kind.FLAG, "b", True, False, False)),
        ("y = Add(d, grid)", (Kind.COORDINATE, "grid", False, True, True)),
        ("y = Add(grid, grid)", (Kind.COORDINATE, "grid", True, True, False)),
        ("b = Cast<to = 9>(x) y = Where(b, f, f)", (Kind.COUNT, "n", True, False, False)),
        ("b = Cast<to = 9>(x) y = Where(b, f, d)", (Kind.COUNT, "n", False, False, True)),
        ("b = Cast<to = 9>(x) y = Where(b, d, d)", None),
        ("y = Mul(d, x)", None),
    ],
)  # fmt: skip
def test_what_is_known_of_a_value(body: str, expected: tuple[object, ...] | None) -> None:
    assert known(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("v, i = TopK(x, n) y = Cast<to = 1>(i)", Kind.COUNT),
        ("v, i = TopK(n, n) y = Cast<to = 1>(v)", Kind.COUNT),
        ("b = Greater(x, x) i = Cast<to = 7>(b) v, p = TopK(i, n) y = Cast<to = 1>(v)", Kind.FLAG),
        ("b = Greater(x, x) i = Cast<to = 7>(b) s = Mul(i, i) y = Cast<to = 1>(s)", Kind.FLAG),
        ("b = Greater(x, x) i = Cast<to = 7>(b) s = Mul(i, n) y = Cast<to = 1>(s)", Kind.COUNT),
        ("b = Greater(x, x) i = Cast<to = 7>(b) s = Where(b, i, i) y = Cast<to = 1>(s)", Kind.FLAG),
        ("b = Greater(x, x) i = Cast<to = 7>(b) s = Gather(n, i) y = Cast<to = 1>(s)", Kind.COUNT),
        ("b = Greater(x, x) i = Cast<to = 7>(b) s = ReduceSum(i) y = Cast<to = 1>(s)", Kind.COUNT),
        ("b = Greater(x, x) e = Cast<to = 11>(b) y = Cast<to = 1>(e)", Kind.FLAG),
        ("b = Greater(x, x) i = Cast<to = 6>(b) j = Cast<to = 7>(i) y = Cast<to = 1>(j)",
         Kind.FLAG),
        ("b = Greater(x, x) h = Cast<to = 10>(b) y = Cast<to = 1>(h)", None),
        ("b = Greater(x, x) h = Cast<to = 10>(x) i = Cast<to = 7>(h) y = Cast<to = 1>(i)",
         Kind.COUNT),
        ("s = Add(n, n) t = Tanh(x) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = BitShift<direction = \"LEFT\">(u, u) y = Cast<to = 1>(s)", Kind.COUNT),
        ("s = MatMulInteger(q, r) y = Cast<to = 1>(s)", None),
        ("y = Cast<to = 1>(q)", None),
    ],
)  # fmt: skip
def test_integers_and_doubles_are_followed(body: str, expected: Kind | None) -> None:
    inputs = "int64[8] n, float[8] x, uint64[8] u, uint8[8,8] q, int8[8,8] r"
    assert kind(counted(body, inputs)) is expected


CHAIN = """t = Cast<to = 9>(k) d = Tanh(x) f = Cast<to = 1>(n)
    u, v, w = Loop(k, t, d, d, d) <body = b (int64 i, bool on, float[8] p, float[8] q, float[8] r)
        => (bool go, float[8] s, float[8] a, float[8] c) {
        go = Identity(on) s = Neg(%s) a = Neg(p) c = Neg(q) }> y = Sum(u, v, w)"""


@pytest.mark.parametrize(("given", "expected"), [("f", Kind.COUNT), ("d", None)])
def test_a_loop_is_followed_until_nothing_is_added(given: str, expected: Kind | None) -> None:
    """A count reaches the third state in the third turn."""
    model = counted(CHAIN % given, "int64 k, int64[8] n, float[8] x")
    assert [kind(model, name) for name in "uvw"] == [expected] * 3
    assert [kind(model, name) for name in "pqr"] == [expected] * 3


@pytest.mark.parametrize(
    ("used", "flags"),
    [
        ("z = Mul(f, low)", "fn"),
        ("z = Mul(low, f)", "fn"),
        ("z = Mul(f, masks)", "fn"),
        ("z = Mul(f, higher)", ""),
        ("z = Mul(f, some)", ""),
        ("z = Mul(f, none)", ""),
        ("z = Mul(f, x)", ""),
        ("h = Mul(f, g) z = Mul(h, low)", "fghmn"),
        ("h = Sub(one, f) z = Mul(h, low)", "fhn"),
        ("h = Sub(f, one) z = Mul(h, low)", "h"),
        ("h = Sub(g, f) z = Mul(h, low)", "h"),
        ("h = Reshape(f, two) z = Mul(h, low)", "fhn"),
        ("h = Where(c, f, g) z = Mul(h, low)", "fghmn"),
        ("h = Add(f, g) z = Mul(h, low)", "h"),
        ("z = Add(f, low)", ""),
        ("z = Cast<to = 9>(n)", "fn"),
        ("z = Cast<to = 9>(f)", ""),
        ("z = Cast<to = 7>(n)", ""),
        ("h = Neg(f) u = Cast<to = 9>(x) z = Cast<to = 9>(m)", "gm"),
        ("h = Mul(n, m) z = Cast<to = 9>(h)", "fghmn"),
        ("h = Add(n, m) z = Cast<to = 9>(h)", "h"),
        ("k = Mul(g, higher) z = Mul(f, low)", "fn"),
    ],
)
def test_flags_are_what_masks_are_made_of(used: str, flags: str) -> None:
    model = counted(
        f"f = Cast<to = 1>(n) g = Cast<to = 1>(m) {used} y = Add(f, g)",
        "int64[4] n, int64[4] m, float[4] x, bool[4] c",
        low=np.array([-1000], np.float32), higher=np.array([-999], np.float32),
        masks=np.array([-1000, -2000, -1e4, -1e9], np.float32),
        some=np.array([-1000, 0, 0, -1000], np.float32), none=np.zeros((0, 4), np.float32),
        one=np.array([1], np.float32), two=np.array([2, 2]),
    )  # fmt: skip
    names = [n for n in "fgmnh" if n in model.graph.flat.value_names]
    assert {name for name in names if kind(model, name) is Kind.FLAG} == {*flags}


def test_what_is_said_to_be_data_is_data() -> None:
    graph = counted("y = Mul(x, x)", "float[8] x").graph
    x, y = map(graph.flat.value_names.index, "xy")
    found = Counts(graph, lambda value: 0.0, {x: None})
    assert (found[x], found[y]) == (None, None)
    found = Counts(graph, lambda value: 0.0, {x: Fact(Kind.COUNT, x, True)})
    assert found[y] == Fact(Kind.COUNT, x, True)
