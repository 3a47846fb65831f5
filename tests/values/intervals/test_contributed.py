"""Operators of ONNX Runtime: every number that its CPU provider computes lies in its interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from releases import before

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.load import load
from amp_rewrite.values.intervals.interval import Interval
from amp_rewrite.values.intervals.moving import numbers
from amp_rewrite.values.intervals.propagate import intervals_of

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def floats(*shape: int, scale: float = 3.0) -> Array:
    return (scale * RNG.standard_normal(shape)).astype(np.float32)


POSITIONS = np.arange(5, dtype=np.int64)[None]
ANGLES = np.arange(8)[:, None] * np.array([1.0, 0.1], np.float32)
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
MASK = np.ones((1, 1), np.int32) * 4

# An operator, its attributes, inputs by name (`w...` are constants, None is left out), for each
# output whether it holds floats or integers, and which outputs have bounds.
CASES: dict[str, tuple[str, dict[str, Any], list[tuple[str, Array | None]], str, set[int]]] = {
    "gelu": ("Gelu", {}, [("x", floats(2, 5, 8))], "f", {0}),
    "bias-gelu": ("BiasGelu", {}, [("x", floats(2, 5, 8)), ("w", floats(8))], "f", {0}),
    "fast-gelu": ("FastGelu", {}, [("x", floats(2, 5, 8))], "f", {0}),
    "fast-gelu-biased": ("FastGelu", {}, [("x", floats(2, 5, 8)), ("w", floats(8))], "f", {0}),
    "quick-gelu": ("QuickGelu", {"alpha": 0.5}, [("x", floats(2, 5, 8))], "f", {0}),
    "skip-layer": (
        "SkipLayerNormalization",
        {},
        [("x", floats(2, 5, 8)), ("s", floats(2, 5, 8)), ("w1", floats(8)), ("w2", floats(8)),
         ("w3", floats(8))],
        "ffff",
        {0, 3},
    ),
    "skip-rms": (
        "SkipSimplifiedLayerNormalization",
        {},
        [("x", floats(2, 5, 8)), ("s", floats(2, 5, 8)), ("w1", floats(8)), ("w2", floats(8))],
        "ffff",
        {0, 3},
    ),
    "embedded": (
        "EmbedLayerNormalization",
        {},
        [("i", np.array([[1, 2, 3]], np.int32)), ("j", np.array([[0, 1, 0]], np.int32)),
         ("w1", floats(6, 8)), ("w2", floats(4, 8)), ("w3", floats(2, 8)), ("w4", floats(8)),
         ("w5", floats(8))],
        "fi",
        {0, 1},
    ),
    "rotary": (
        "RotaryEmbedding",
        {},
        [("x", floats(1, 2, 5, 4)), ("p", POSITIONS), ("wc", COS), ("ws", SIN)],
        "f",
        {0},
    ),
    "matmul": (
        "FusedMatMul", {"alpha": 0.5}, [("x", floats(2, 5, 8)), ("w", floats(8, 3))], "f", {0}
    ),
    "matmul-turned": (
        "FusedMatMul",
        {"alpha": -2.0, "transA": 1, "transB": 1},
        [("x", floats(8, 5)), ("w", floats(3, 8))],
        "f",
        {0},
    ),
    "matmul-computed": (
        "FusedMatMul", {"transA": 1}, [("x", floats(2, 8, 5)), ("z", floats(2, 8, 3))], "f", {0}
    ),
    "gemm": (
        "FusedGemm",
        {"activation": "Relu", "alpha": 0.5},
        [("x", floats(5, 8)), ("w", floats(8, 3)), ("w2", floats(3))],
        "f",
        {0},
    ),
    "conv": (
        "FusedConv",
        {"activation": "Tanh"},
        [("x", floats(1, 3, 6, 6)), ("w", floats(4, 3, 3, 3))],
        "f",
        {0},
    ),
    "conv-sum": (
        "FusedConv",
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        [("x", floats(1, 3, 6, 6)), ("w", floats(4, 3, 3, 3)), ("w2", floats(4)),
         ("z", floats(1, 4, 6, 6))],
        "f",
        {0},
    ),
    "attention": (
        "Attention",
        {"num_heads": 2},
        [("x", floats(1, 5, 8)), ("w", floats(8, 24)), ("w2", floats(24))],
        "f",
        {0},
    ),
    "multi-head": (
        "MultiHeadAttention",
        {"num_heads": 2},
        [("q", floats(1, 5, 8)), ("k", floats(1, 5, 8)), ("v", floats(1, 5, 8)), ("w", floats(24))],
        "f",
        {0},
    ),
    "grouped": (
        "GroupQueryAttention",
        {"num_heads": 2, "kv_num_heads": 1},
        [("q", floats(1, 5, 16)), ("k", floats(1, 5, 8)), ("v", floats(1, 5, 8)), ("a", None),
         ("b", None), ("n", np.array([4], np.int32)), ("t", np.array(5, np.int32))],
        "fff",
        {0, 2},
    ),
}  # fmt: skip


TYPES = {"f": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT32}


def model(case: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node, and its feeds."""
    op_type, attributes, inputs, outputs, _ = CASES[case]
    names = ["" if array is None else name for name, array in inputs]
    given = {name: array for name, array in inputs if array is not None}
    weights = {name: array for name, array in given.items() if name.startswith("w")}
    feeds = {name: array for name, array in given.items() if name not in weights}
    ends = {f"y{k}": TYPES[kind] for k, kind in enumerate(outputs)}
    node = helper.make_node(op_type, names, [*ends], domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [helper.make_tensor_value_info(end, kind, None) for end, kind in ends.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


def bounds(source: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Interval]:
    """Return the intervals of a model's values by name; what the feeds hold is given."""
    graph = build_type_graph(load(source))
    names = graph.flat.value_names
    given = {v: numbers(feeds[names[v]]) for v in graph.flat.main.inputs}
    found = intervals_of(graph, inputs=given)
    return {name: found[v] for v, name in enumerate(names) if name}


@pytest.mark.parametrize("case", CASES)
def test_what_the_cpu_provider_computes_lies_within_the_interval(case: str) -> None:
    source, feeds = model(case)
    bounded = CASES[case][-1]
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = bounds(source, feeds)
    for number, result in enumerate(session.run(None, feeds)):
        array = np.asarray(result)
        interval = found[f"y{number}"]
        assert interval.is_bounded == (number in bounded), (number, interval)
        if result is None:  # a mean or deviation, which inference does not need
            assert before("onnxruntime", (1, 30))
        elif array.size:
            assert interval.low <= array.min(), (number, interval)
            assert array.max() <= interval.high, (number, interval)


@pytest.mark.parametrize(("activation", "low"), [(0, None), (1, -0.3)])
def test_a_group_normalization_is_bounded_by_what_is_normalised_together(
    activation: int, low: float | None
) -> None:
    source = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[1,4,4,8] x) => (float[1,4,4,8] y)
        <float[8] scale = {{1,1,1,1,1,1,1,1}}, float[8] bias = {{0,0,0,0,0,0,0,0}}> {{
          y = com.microsoft.GroupNorm<groups: int = 2, activation: int = {activation}>
            (x, scale, bias) }}"""
    )
    found = bounds(source, {"x": np.array([-np.inf, np.inf], np.float32)})["y"]
    assert found.high == pytest.approx(np.sqrt(4 * 4 * 8 / 2), rel=0.01)
    assert found.low == pytest.approx(-found.high if low is None else low, rel=0.1)


@pytest.mark.parametrize(
    "node",
    [
        "FusedMatMul<transBatchA: int = 1>(x, w)",
        'FusedGemm<activation: string = "Elu">(x, w)',
        "MatMulNBits(x, w)",
    ],
)
def test_nothing_is_known_of_what_has_no_rule(node: str) -> None:
    source = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {{1,2,3,4}}> {{
          y = com.microsoft.{node} }}"""
    )
    assert not bounds(source, {"x": np.ones((2, 2), np.float32)})["y"].is_bounded
