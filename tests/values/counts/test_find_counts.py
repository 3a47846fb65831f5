"""What kind of numbers a model computes, node by node."""

from __future__ import annotations

import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.values.counts.fact import Fact, Kind
from amp_rewrite.values.counts.find_counts import Counts
from amp_rewrite.values.counts.local_functions import Functions
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
    graph = build_type_graph(amp.load(source))
    intervals = intervals_of(graph)
    given = {v: Fact(Kind.INPUT, v) for v in graph.flat.main.inputs if graph.is_retyped(v)}
    found = Counts(graph, lambda v: intervals[v].magnitude, Functions().results, given)
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
        ("y = ReduceSum(f)", Kind.COUNT),
        ("y = CumSum(f, zero)", Kind.COUNT),
        ("y = ReduceMean(f)", None),
        ("g = Sub(two, f) y = ReduceSum(g)", None),
        ("y = Mul(f, f)", Kind.FLAG),
        ("y = Mul(f, low)", None),
        ("y = Transpose(f)", Kind.FLAG),
    ],
)
def test_flags_are_counted_by_sums(body: str, kind: Kind | None) -> None:
    assert kind_of(f"f = Cast<to = 1>(n) {body}", "bool[a] n") is kind


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


@pytest.mark.parametrize(
    ("used", "kind"),
    [
        ("z = Mul(f, low)", Kind.FLAG),
        ("i = Sub(half, f) z = Mul(low, i)", Kind.FLAG),
        ("z = Cast<to = 9>(n)", Kind.FLAG),
        ("u = Unsqueeze(n, axis) z = Cast<to = 9>(u)", Kind.FLAG),
        ("z = Mul(f, half)", Kind.COUNT),
        ("i = Add(f, f) z = Mul(low, i)", Kind.COUNT),
    ],
)
def test_integers_are_flags_where_the_model_uses_them_so(used: str, kind: Kind) -> None:
    assert kind_of(f"f = Cast<to = 1>(n) {used} y = Identity(f)", "int64[a] n") is kind


def test_a_loop_counts_in_what_it_carries() -> None:
    body = """t = Cast<to = 9>(one) m = Size(x) y = Loop(m, t, half) <
        body = b (int64 i, bool on, float c) => (bool go, float d) {
            go = Identity(on) f = Cast<to = 1>(i) d = Add(c, f) }>"""
    assert kind_of(body, "float[a] x") is Kind.COUNT


@pytest.mark.parametrize("between", ["t = Identity(s)", "r = Identity(s) t = Identity(r)"])
def test_a_count_goes_through_sequences_behind_identities(between: str) -> None:
    body = f"f = Cast<to = 1>(n) s = SequenceConstruct(f, f) {between} y = SequenceAt(t, zero)"
    assert kind_of(body, "int64[a] n") is Kind.COUNT
