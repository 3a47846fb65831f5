"""Intervals of all values: every number that is computed lies in its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from backend_cases import all_cases
from interval_models import (
    LOOPED,
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
from amp_rewrite.values.intervals.interval import Interval
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


@pytest.mark.parametrize(("limit", "high"), [(5, 4), ((2, 7), 6), (1, 0), (0, 0), (None, 2.0**63)])
def test_turns_are_counted_up_to_their_limit(limit: object, high: float) -> None:
    body = loop("s1 = Identity(s) u = Cast<to = 1>(i)", more="u")
    found = bounds_of(body, LOOPED, {} if limit is None else {"n": limit}, value="u2")
    assert found[:2] == pytest.approx((0, high - (limit is None)), rel=1e-5)
