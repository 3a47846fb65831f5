"""Intervals of all values: every number that is computed lies in its interval."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from backend_cases import all_cases
from interval_models import (
    LOOPED,
    NOTHING,
    bounds_of,
    known_of,
    loop,
    model_of,
    named,
    near,
)
from rewrite_text import parse

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.proto.missing_shapes import missing_shapes
from amp_rewrite.values.intervals import propagate
from amp_rewrite.values.intervals.interval import Interval, between
from amp_rewrite.values.intervals.moving import numbers
from amp_rewrite.values.intervals.propagate import Intervals, intervals_of

SHARES = 6
INF = math.inf


@cache
def cases() -> dict[str, Any]:
    """Return the cases of the standard by name."""
    return {case.name: case for case in all_cases() if case.model is not None}


def intervals(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, Interval]:
    """Return the intervals of a model's values by name, with its feeds as annotations."""
    type_graph = build_type_graph(read_flat(model))
    flat = type_graph.flat
    given = {v: flat.value_names[v] for v in flat.main.inputs}
    found = intervals_of(
        type_graph,
        inputs={v: numbers(np.asarray(feeds[n])) for v, n in given.items() if n in feeds},
    )
    return {name: found[v] for v, name in enumerate(flat.value_names) if name}


def outside(array: np.ndarray, interval: Interval, tolerance: float = 2e-6) -> np.ndarray:
    """Return the elements of an array that its interval does not hold, but for rounding."""
    if array.dtype.kind not in "fiub" and array.dtype.name not in ("bfloat16", "float16"):
        return np.zeros(0)
    numbers_ = array.astype(np.float64).reshape(-1)
    numbers_ = numbers_[~np.isnan(numbers_)]
    low, high = (
        end - tolerance * sign * max(1.0, abs(end))
        for end, sign in ((interval.low, 1), (interval.high, -1))
    )
    bad = (numbers_ < low) | (numbers_ > high) | (np.abs(numbers_) < interval.away * 0.999)
    if numbers_.size and np.abs(numbers_).max() < interval.reach * 0.999:
        return numbers_
    return numbers_[bad]


@pytest.mark.share(2)
@pytest.mark.parametrize("share", range(SHARES))
def test_the_results_of_the_standard_lie_within_their_intervals(share: int) -> None:
    some = sorted(cases())[::6][share::SHARES]
    held = sum(lie_within(cases()[name]) for name in some)
    assert held > len(some) // 2


def lie_within(case: Any) -> bool:
    """Check a case; return whether its model is one that is rewritten."""
    model = case.model
    try:
        load(model)
    except AmpError:
        return False
    for inputs, outputs in case.data_sets:
        names = [i.name for i in model.graph.input]
        feeds = {n: a for n, a in zip(names, inputs, strict=False) if isinstance(a, np.ndarray)}
        found = intervals(model, feeds)
        for value, array in zip(model.graph.output, outputs, strict=True):
            if isinstance(array, np.ndarray):
                at = (case.name, value.name, found[value.name])
                assert not outside(array, found[value.name]).size, at
    return True


@pytest.mark.parametrize(
    ("given", "made", "exact"),
    [("FLOAT16", "FLOAT", True), ("FLOAT", "FLOAT", True), ("FLOAT", "FLOAT16", False)],
)
def test_a_cast_rounds_but_to_a_type_that_holds_what_it_reads(
    given: str, made: str, exact: bool
) -> None:
    types = onnx.TensorProto.DataType
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Cast", ["x"], ["y"], to=types.Value(made))],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("y", types.Value(made), [1])],
        [onnx.helper.make_tensor("x", types.Value(given), [1], [1.5])],
    )
    found = intervals(onnx.helper.make_model(graph), {})["y"]
    assert found.is_point is exact
    assert found.low <= 1.5 <= found.high


@pytest.mark.parametrize("lengths", ["4,4", "N,M"])
def test_a_mean_of_infinities_has_ends_that_are_numbers(lengths: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{lengths}] x) => (float[K,1] y) <int64[1] axes = {{1}}> {{
          l = Log(x)
          y = ReduceMean<keepdims = 1>(l, axes)
        }}""")
    found = intervals_of(build_type_graph(read_flat(model)), inputs={0: between(-300.0, -300.0)})
    known = [found[value] for value in range(found.flat.n_values)]
    assert not any(math.isnan(end) for interval in known for end in interval)


def test_an_extreme_of_nothing_is_not_bounded() -> None:
    feeds = {"data": np.zeros((2, 0, 4), np.float32)}
    assert intervals(cases()["test_reduce_max_empty_set"].model, feeds)["reduced"].low == -np.inf


def test_what_a_loop_counts_up_may_be_anything() -> None:
    given = {"start": 1, "limit": 5, "delta": 2}
    feeds = {name: np.array(number, np.float32) for name, number in given.items()}
    model = cases()["test_range_float_type_positive_delta_expanded"].model
    assert intervals(model, feeds)["output"].high == np.inf


def test_a_rule_is_asked_once_for_nodes_of_which_the_same_is_known() -> None:
    text = """g (float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] d) {
        l = Sigmoid(x) r = Sigmoid(z) a = Exp(l) b = Exp(r) c = Sub(l, l) d = Sub(l, r) }"""
    found = intervals_of(build_type_graph(read_flat(parse(text))))
    left, right, first, second, same, other = (found.case(node) for node in range(6))
    assert left != right  # inputs of the model are told apart
    assert first == second
    assert same != other
    flat = found.flat
    number = {name: v for v, name in enumerate(flat.value_names)}
    assert found[number["b"]] == found[number["a"]]
    assert found[number["c"]] == Interval(0, 0, 0, 0)
    assert found[number["d"]].low < -0.9


def test_what_a_constant_behind_identities_holds_is_seen_by_each_reader() -> None:
    text = """g (float[4,3] x) => (float[N,1] a, float[N,1] b)
      <int64[1] i = {0}, int64[1] j = {1}> {
        k = Identity(i) m = Identity(j) a = ReduceSum(x, k) b = ReduceSum(x, m) }"""
    found = intervals_of(build_type_graph(read_flat(parse(text))), inputs={0: Interval(0, 1)})
    names = found.flat.value_names
    assert 4 <= found[names.index("a")].high < 4.1
    assert 3 <= found[names.index("b")].high < 3.1


CHAIN = "e{i} = Tanh(x{j}) m{i} = ReduceMean(e{i}) x{i} = LayerNormalization(m{i}, g)"


def test_shapes_are_not_inferred_where_nothing_that_is_asked_for_depends_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = " ".join(CHAIN.format(i=k + 1, j=k) for k in range(700))
    text = f"g (float[4,3] x0) => (float[4,3] x700) <float[3] g = {{1, 2, 1}}> {{ {body} }}"
    flat = read_flat(parse(text).SerializeToString())
    found, inferred = intervals_of(build_type_graph(flat)), list[int]()

    def noted(flat: FlatGraph) -> dict[int, Sequence[int | None]]:
        inferred.append(flat.n_nodes)
        return missing_shapes(flat)

    monkeypatch.setattr(flat, "infer", noted)
    names = flat.value_names
    assert found[names.index("x500")].high < 4
    assert not found.may_reach(65520.0)[names.index("x1") :].any()
    assert inferred == []
    assert found[names.index("m500")].high < 1.01  # the length of the sum bounds its error
    assert inferred == [flat.n_nodes]


@pytest.mark.parametrize(
    "type_", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_a_nan_among_constants_of_any_type_does_not_count(type_: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = numbers(np.array([-1, np.nan, 2]).astype(type_))
        nothing = numbers(np.array([np.nan]).astype(type_))
    assert found == Interval(-1, 2, 1, 2)
    assert (nothing.low, nothing.high) == (-INF, INF)


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FA00001])
def test_weights_that_are_not_finite_bound_nothing_and_warn_of_nothing(bits: int) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]>'
        "g (float[N,2] x) => (float[N,2] y) { y = MatMul(x, w) }"
    )
    weights = np.array([[bits, 1], [2, 3]], np.uint32).view(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    found = intervals(model, {"x": np.ones((1, 2), np.float32)})
    assert (found["y"].low, found["y"].high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    "name",
    [
        "test_einsum_batch_matmul",
        "test_einsum_sum",
        "test_einsum_transpose",
    ],
)
def test_what_has_a_rule_is_bounded(name: str) -> None:
    case, model = cases()[name], cases()[name].model
    for inputs, _ in case.data_sets:
        feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
        assert intervals(model, feeds)[model.graph.output[0].name].is_bounded


def test_the_shape_of_a_repeated_number_is_seen_behind_identities() -> None:
    text = """g (float[1,4,5,5] x) => (float[1,2,3,3] y) <int64[4] size = {2, 4, 3, 3}> {
      s = Identity(size) w = ConstantOfShape<value = float[1] {3.0}>(s) v = Identity(w)
      y = Conv(x, v) }"""
    found = intervals(parse(text), {"x": np.array([0.0, 1.0], np.float32)})
    assert found["y"].high == pytest.approx(4 * 3 * 3 * 3.0, rel=1e-3)


def known_early(
    monkeypatch: pytest.MonkeyPatch, body: str, most: int
) -> tuple[Intervals, dict[str, int], list[int]]:
    """Return intervals, values by name, and what will be noted when shapes are inferred.

    Models are large from `most` nodes on.
    """
    monkeypatch.setattr(propagate, "_MANY_NODES", most)
    text = f"g (float[4,3] x, bool b) => (float[N,M] y) <float[3] g = {{1, 2, 1}}> {{ {body} }}"
    flat = read_flat(parse(text).SerializeToString())
    inferred = list[int]()

    def noted(flat: FlatGraph) -> dict[int, Sequence[int | None]]:
        inferred.append(flat.n_nodes)
        return missing_shapes(flat)

    monkeypatch.setattr(flat, "infer", noted)
    found = intervals_of(build_type_graph(flat))
    return found, {name: v for v, name in enumerate(flat.value_names)}, inferred


SUMMED = "e = Tanh(x) m = ReduceSum(e) n = Neg(m) w = Tanh(x) y = LayerNormalization(w, g)"


def test_a_shape_that_is_asked_for_is_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    found, names, inferred = known_early(monkeypatch, SUMMED, 0)
    assert found.shape(names["x"]) == [4, 3]
    assert inferred == []
    assert found.shape(names["m"]) == [1, 1]
    assert inferred == [5]
    assert found.shape(names["e"]) == [4, 3]
    assert inferred == [5]


LONG = (1 << 18) + 1


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.linspace(-3, 2, LONG, dtype=np.float32), (-3, 3, 0, 3)),
        (np.append(np.ones(LONG, np.float32), np.inf), (-INF, INF, 0, 0)),
        (np.ones(LONG, np.int8), (-128, 127, 0, 0)),
        (np.ones(LONG - 1, np.float32), (1, 1, 1, 1)),
    ],
)
def test_of_long_constants_the_largest_magnitude_is_known(
    array: np.ndarray, expected: tuple[float, ...]
) -> None:
    found = known_of(model_of("y = Abs(x)", arrays={"k": array}))
    assert named(found, "k") == expected


@pytest.mark.parametrize(
    ("source", "target", "is_exact"),
    [
        ("float16", "FLOAT", True),
        ("bfloat16", "FLOAT", True),
        ("double", "FLOAT", False),
        ("float", "BFLOAT16", False),
        ("float16", "BFLOAT16", False),
        ("bfloat16", "FLOAT16", False),
        ("int32", "FLOAT", False),
        ("bool", "FLOAT", False),
        ("int32", "INT64", True),
    ],
)
def test_a_cast_rounds_what_its_type_may_not_hold(source: str, target: str, is_exact: bool) -> None:
    to, made = int(onnx.TensorProto.DataType.Value(target)), target.lower()
    found = bounds_of(f"y = Cast<to = {to}>(x)", f"{source}[2] x", {"x": 1}, made=f"{made}[2] y")
    assert found.is_point is is_exact
    assert found.low <= 1 <= found.high


@pytest.mark.parametrize(
    ("node", "type_", "is_exact"),
    [
        ("Add(x, x)", "float", False),
        ("Add(x, x)", "int32", True),
        ("Abs(x)", "float", True),
        ("Reshape(x, s)", "float", True),
        ("Sqrt(x)", "float", False),
    ],
)
def test_arithmetic_in_floats_rounds(node: str, type_: str, is_exact: bool) -> None:
    inputs = f"{type_}[2] x, int64[1] s"
    found = bounds_of(f"y = {node}", inputs, {"x": 1}, made=f"{type_}[2] y")
    assert found.is_point is is_exact
    if not is_exact:
        assert found.high / found.low == pytest.approx(1 + 2 * 2.0**-21, rel=1e-9)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("s1 = Tanh(s)", (-0.5, 0.75)),
        ("s1 = Identity(s)", (-0.5, 0.75)),
        ("s1 = Exp(s)", None),
        ("s1 = Add(s, s)", None),
    ],
)
def test_a_state_keeps_its_interval_where_a_turn_stays_within_it(
    nodes: str, expected: tuple[float, float] | None
) -> None:
    found = bounds_of(loop(nodes), LOOPED, {"x": Interval(-0.5, 0.75, 0, 0.75)}, value="s2")
    assert found == near((-INF, INF) if expected is None else expected)


def test_in_a_loop_inside_a_loop_a_state_may_begin_with_anything() -> None:
    inner = """t2, q2 = Loop(n, , s, s) <body = d (int64 j, bool g, float[2] t, float[2] q) =>
        (bool h, float[2] t1, float[2] q) { h = Identity(g) t1 = Tanh(t) }>"""
    first = """r = Loop(n, , x) <body = f (int64 k, bool p, float[2] w) => (bool m, float[2] l)
        { m = Identity(p) l = Identity(w) }>"""
    body = loop(f"{inner} s1 = Identity(s) u = Neg(t2) v = Neg(q2)", more="u v")
    body = f"{first} {body}"
    found = known_of(model_of(body, LOOPED), {"x": (-0.5, 0.75)})
    assert tuple(named(found, "t2")) == NOTHING
    assert named(found, "q2").is_bounded


@pytest.mark.parametrize(("limit", "high"), [(5, 4), ((2, 7), 6), (1, 0), (0, 0), (None, 2.0**63)])
def test_turns_are_counted_up_to_their_limit(limit: object, high: float) -> None:
    body = loop("s1 = Identity(s) u = Cast<to = 1>(i)", more="u")
    found = bounds_of(body, LOOPED, {} if limit is None else {"n": limit}, value="u2")
    assert found[:2] == pytest.approx((0, high - (limit is None)), rel=1e-5)
