"""Random graphs on random inputs: ONNX Runtime computes nothing outside the intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.values.intervals import propagate
from amp_rewrite.values.intervals.interval import Interval, between
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.magnitudes.estimates import Estimates
from amp_rewrite.values.sweep import ShapeOf, node_kinds

SIDE = 4
UNARY = (
    *("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Sqrt", "Exp", "Log"),
    *("Reciprocal", "Softplus", "Softsign", "Floor", "Ceil", "Round", "Sign", "Elu", "Selu"),
    *("LeakyRelu", "HardSigmoid", "Identity", "Transpose", "Softmax", "Gelu", "Mish", "HardSwish"),
    *("Celu", "ThresholdedRelu", "Shrink", "LpNormalization", "Atan", "Hardmax", "LogSoftmax"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "MatMul", "Sum", "Mean", "PRelu")
REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
            "ReduceSumSquare", "ReduceLogSumExp")  # fmt: skip
SPECIAL = ("Pow", "Clip", "Where", "LayerNormalization", "Gemm", "Concat", "Pad", "CumSum", "Cast")

operator = st.tuples(
    st.sampled_from((*UNARY, *BINARY, *REDUCING, *SPECIAL)),
    st.tuples(*[st.integers(0, 50)] * 3),
)
ends = st.tuples(*[st.sampled_from([-300.0, -2.5, -1.0, -1e-8, 0.0, 1e-8, 0.5, 3.0, 1e5])] * 2)


def constant(name: str, seed: int, scale: float = 1.0) -> onnx.TensorProto:
    values = scale * np.random.default_rng(seed).standard_normal((SIDE, SIDE))
    return numpy_helper.from_array(values.astype(np.float32), name)


def fixed(name: str, *numbers: float, dtype: type = np.float32) -> onnx.TensorProto:
    array = np.array(numbers, dtype)
    return numpy_helper.from_array(array if array.size != 1 else array.reshape(()), name)


CONSTANTS = (
    *(constant("w", 1), constant("v", 2, 1e-3), fixed("two", 2), fixed("half", 0.5)),
    *(fixed("minus", -1), fixed("low", 1e-8), fixed("high", 6), fixed("scale", 1, 2, 3, 4)),
    *(fixed("pads", 0, 1, 0, -1, dtype=np.int64), fixed("last", 1, dtype=np.int64)),
    numpy_helper.from_array(np.array([1], np.int64), "axes"),
    numpy_helper.from_array(np.array([1, 0, 0, 1], np.bool_), "mask"),
)


def nodes(op: str, a: str, b: str, choice: int, out: str) -> list[onnx.NodeProto]:
    """Return the nodes of one step, all of whose results are SIDE x SIDE."""
    make = helper.make_node
    if op in UNARY:
        return [make(op, [a], [out])]
    if op in BINARY:
        return [make(op, [a, b], [out])]
    if op in REDUCING:
        return [make(op, [a, "axes"], [f"{out}r"]), make("Add", [f"{out}r", b], [out])]
    return special_nodes(op, a, b, choice, out)


def special_nodes(op: str, a: str, b: str, choice: int, out: str) -> list[onnx.NodeProto]:
    make = helper.make_node
    single = {
        "Pow": [a, ("two", "half", "minus")[choice % 3]],
        "Clip": [a, "low", "high"],
        "Where": ["mask", a, b],
        "LayerNormalization": [a, "scale"],
        "Pad": [a, "pads", "half"],
        "CumSum": [a, "last"],
    }
    if op in single:
        return [make(op, single[op], [out])]
    if op == "Gemm":
        return [make(op, [a, "w", b], [out], alpha=-0.5, beta=2.0, transB=choice % 2)]
    if op == "Concat":
        parts = make("Concat", [a, b], [f"{out}c"], axis=1)
        return [parts, make("Split", [f"{out}c"], [out, f"{out}s"], axis=1, num_outputs=2)]
    bounded = make("Clip", [a, "minus", "high"], [f"{out}b"])
    integer = make("Cast", [f"{out}b"], [f"{out}i"], to=TensorProto.INT32)
    return [bounded, integer, make("Cast", [f"{out}i"], [out], to=TensorProto.FLOAT)]


def random_model(steps: list[tuple[str, tuple[int, int, int]]]) -> onnx.ModelProto:
    values, made = ["x", "z", "w", "v"], list[onnx.NodeProto]()
    for number, (op, (first, second, choice)) in enumerate(steps):
        pair = values[first % len(values)], values[second % len(values)]
        made += nodes(op, *pair, choice, f"n{number}")
        values.append(f"n{number}")
    inputs = [helper.make_tensor_value_info(n, 1, [SIDE, SIDE]) for n in ("x", "z")]
    outputs = [helper.make_tensor_value_info(values[-1], 1, None)]
    graph = helper.make_graph(made, "g", inputs, outputs, CONSTANTS)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def is_inside(array: np.ndarray, interval: Interval) -> bool:
    """Tell whether an interval holds an array, but for a few units in the last place."""
    numbers = array.astype(np.float64)
    numbers = numbers[~np.isnan(numbers)]
    room = 1e-5
    low, high = (
        end if np.isinf(end) else end + sign * (room * abs(end) + 1e-6)
        for end, sign in ((interval.low, -1), (interval.high, 1))
    )
    away = interval.away * (1 - room) - 1e-37
    return bool(((numbers >= low) & (numbers <= high) & (np.abs(numbers) >= away)).all())


def made_of_nan(graph: onnx.GraphProto, results: Mapping[str, np.ndarray]) -> set[str]:
    """Return the values that are computed from one with a NaN, such as the root of -1.

    Of them intervals say nothing: a Cast of NaN to an integer is any number.
    """
    found: set[str] = set()
    for node in graph.node:
        arrays = [results[name] for name in node.input if name in results]
        if not found.isdisjoint(node.input) or any(has_nan(array) for array in arrays):
            found.update(node.output)
    return found


def has_nan(array: np.ndarray) -> bool:
    return bool(array.dtype.kind == "f" and np.isnan(array).any())


@settings(max_examples=60)
@given(
    steps=st.lists(operator, min_size=1, max_size=8),
    ranges=st.tuples(ends, ends),
    seed=st.integers(0, 99),
)
def test_everything_that_is_computed_lies_in_its_interval(
    steps: list[tuple[str, tuple[int, int, int]]],
    ranges: tuple[tuple[float, float], tuple[float, float]],
    seed: int,
) -> None:
    model, rng = random_model(steps), np.random.default_rng(seed)
    type_graph = build_type_graph(read_flat(model))
    flat = type_graph.flat
    given_ends = [sorted(pair) for pair in ranges]
    inputs = dict(zip(flat.main.inputs, (between(*pair) for pair in given_ends), strict=True))
    feeds = {}
    for name, (low, high) in zip(("x", "z"), given_ends, strict=True):
        array = rng.uniform(low, high, (SIDE, SIDE)).astype(np.float32)
        array.flat[0], array.flat[1] = low, high
        feeds[name] = np.clip(array, np.float32(low), np.float32(high))
    names = [name for node in model.graph.node for name in node.output]
    known = intervals_of(type_graph, inputs=inputs)
    results = Evaluator(model, outputs=names).run(feeds)
    behind_nan = made_of_nan(model.graph, results)
    for name, array in results.items():
        if name not in behind_nan:
            interval = known[flat.value_names.index(name)]
            assert is_inside(np.asarray(array), interval), (name, interval, array)


@settings(max_examples=50)
@given(steps=st.lists(operator, min_size=4, max_size=16), ranges=st.tuples(ends, ends))
def test_what_nodes_of_one_case_share_is_what_their_rules_say_of_each(
    steps: list[tuple[str, tuple[int, int, int]]],
    ranges: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    type_graph = build_type_graph(read_flat(random_model(steps)))
    bounds = [between(*sorted(pair)) for pair in ranges]
    inputs = dict(zip(type_graph.flat.main.inputs, bounds, strict=True))
    shared = intervals_of(type_graph, inputs=inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagate, "node_kinds", each_its_own)
        alone = intervals_of(type_graph, inputs=inputs)
    estimates = Estimates(type_graph, shared), Estimates(type_graph, alone)
    for value, name in enumerate(type_graph.flat.value_names):
        assert shared[value] == alone[value], name
        assert all(type(end) is float for end in shared[value]), name
        assert estimates[0][value] == estimates[1][value], name


@settings(max_examples=30)
@given(steps=st.lists(operator, min_size=4, max_size=12), ranges=st.tuples(ends, ends))
def test_intervals_that_are_asked_for_before_shapes_are_inferred_are_those_after_it(
    steps: list[tuple[str, tuple[int, int, int]]],
    ranges: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    type_graph = build_type_graph(read_flat(random_model(steps)))
    bounds = [between(*sorted(pair)) for pair in ranges]
    inputs = dict(zip(type_graph.flat.main.inputs, bounds, strict=True))
    settled = intervals_of(type_graph, inputs=inputs)
    reached = settled.may_reach(65520.0).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagate, "_MANY_NODES", 0)
        assert intervals_of(type_graph, inputs=inputs).may_reach(65520.0).tolist() == reached
        for value, name in enumerate(type_graph.flat.value_names):
            assert intervals_of(type_graph, inputs=inputs)[value] == settled[value], name


def each_its_own(
    type_graph: TypeGraph, operators: Collection[int], same: Sequence[int], *shape_of: ShapeOf
) -> list[int]:
    """Return kinds that no two nodes share."""
    kinds = node_kinds(type_graph, operators, same, *shape_of)
    return [ABSENT if kind == ABSENT else node for node, kind in enumerate(kinds)]
