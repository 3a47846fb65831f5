"""Operators of ONNX Runtime: every number that its CPU provider computes lies in its interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from interval_models import known_of, model_of, named
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


INF = math.inf
ALL = (-INF, INF)
ROOT = math.sqrt(8) * 1.001
"""The largest of eight numbers of mean square 1."""
SKIPPED = {"x": (1, 2), "s": (10, 20), "g": (1, 3), "b": (5, 6), "c": 100}
ROWS = "float[2,5,8] x, float[2,5,8] s, float[8] g, float[8] b, float[8] c"
QUERIES = "float[1,5,8] q, float[1,5,8] k, float[1,5,8] v, float[24] b, float[1,2,7,4] p"
HELD = {"q": (1, 2), "k": (10, 20), "v": (-4, 8), "b": (-1, 3), "p": (-9, 30)}

# A call, its inputs, what is said of them, and the ends of all outputs but those of integers.
ENDS: dict[str, tuple[str, str, dict[str, Any], list[tuple[float, float] | None]]] = {
    "a sum of three": (
        "BiasAdd(x, g, s)",
        ROWS,
        {"x": (1, 2), "g": 10, "s": (100, 200)},
        [(111, 212)],
    ),
    "a dent": ("Gelu(x)", ROWS, {"x": (-5, 3)}, [(-0.17005, 3)]),
    "a dent behind a bias": ("BiasGelu(x, b)", ROWS, {"x": (-5, 3), "b": 7}, [(0, 10)]),
    "a quick dent": ("QuickGelu(x)", ROWS, {"x": (-5, 3)}, [(-0.27847 / 1.702, 3)]),
    "shares": ("BiasSoftmax(x, s)", ROWS, {}, [(0, 1)]),
    "a normal and its sum": (
        "SkipLayerNormalization(x, s, g, b, c)",
        ROWS,
        SKIPPED,
        [(5 - 3 * ROOT, 6 + 3 * ROOT), ALL, (0, INF), (111, 122)],
    ),
    "a normal whose scale tells its length": (
        "SkipLayerNormalization(x, s, g)",
        "float[2,5,N] x, float[2,5,N] s, float[8] g",
        {"g": 1},
        [(-ROOT, ROOT)],
    ),
    "a simplified normal and its sum": (
        "SkipSimplifiedLayerNormalization(x, s, g, c)",
        ROWS,
        SKIPPED,
        [(-3 * ROOT, 3 * ROOT), ALL, (0, INF), (111, 122)],
    ),
    "a normal of rows of tables": (
        "EmbedLayerNormalization(i, j, t, u, v, g, b)",
        "int32[1,3] i, int32[1,3] j, float[6,8] t, float[4,8] u, float[2,8] v, float[8] g,"
        " float[8] b",
        {"t": (1, 2), "u": (10, 20), "v": (100, 200), "g": (1, 3), "b": (5, 6)},
        [(5 - 3 * ROOT, 6 + 3 * ROOT), None, (111, 222)],
    ),
    "groups with an activation": (
        "GroupNorm<groups = 2>(x, g, b)",
        "float[1,4,2,2] x, float[4] g, float[4] b",
        {"g": (1, 3), "b": (5, 6)},
        [(-0.27847, 6 + 3 * ROOT)],
    ),
    "a turned left operand": (
        "FusedMatMul<transA = 1>(x, z)",
        "float[2,3] x, float[2,5] z",
        {"x": (1, 2), "z": (-1, 4)},
        [(-4, 16)],
    ),
    "a vector that cannot be turned": (
        "FusedMatMul<transA = 1>(x, z)",
        "float[3] x, float[3] z",
        {"x": (1, 2), "z": (1, 4)},
        [(0, INF)],
    ),
    "constant columns": ("FusedMatMul(x, w)", "float[5,2] x", {"x": (1, 2)}, [(-6, 8)]),
    "constant rows": ("FusedMatMul<transB = 1>(x, w)", "float[5,2] x", {"x": (1, 2)}, [(-5, 6)]),
    "turned batches": ("FusedMatMul<transBatchB = 1>(x, w)", "float[5,2] x", {"x": 1}, [ALL]),
    "one operand alone": ("FusedMatMul(x)", "float[5,2] x", {"x": 1}, [ALL]),
    "a Gemm": ("FusedGemm(x, w)", "float[5,2] x", {"x": (1, 2)}, [(-6, 8)]),
    "a Gemm and Relu": (
        'FusedGemm<activation = "Relu">(x, w)',
        "float[5,2] x",
        {"x": (1, 2)},
        [(0, 8)],
    ),
    "a Gemm and Tanh": (
        'FusedGemm<activation = "Tanh">(x, w)',
        "float[5,2] x",
        {"x": (1, 2)},
        [(-1, 1)],
    ),
    "a convolution": ("FusedConv(x, n)", "float[1,1,5] x", {"x": (1, 2)}, [(-8, 6)]),
    "a convolution and a sum": (
        "FusedConv(x, n, , z)",
        "float[1,1,5] x, float[1,2,4] z",
        {"x": (1, 2), "z": (10, 20)},
        [(2, 26)],
    ),
    "a packed product": ("Attention(x, w)", "float[1,5,2] x", {"x": (1, 2)}, [(-6, 8)] * 2),
    "a packed product and its cache": (
        "Attention(x, w, , , p)",
        "float[1,5,2] x, float[2,1,1,3,1] p",
        {"x": (1, 2), "p": (-9, 30)},
        [(-9, 30)] * 2,
    ),
    "a packed product with turned keys": (
        "Attention<do_rotary = 1>(x, w)",
        "float[1,5,2] x",
        {"x": (1, 2)},
        [(-6, 8), ALL],
    ),
    "values of their own": (
        "MultiHeadAttention(q, k, v)",
        QUERIES,
        HELD,
        [(-4, 8), ALL, (-4, 8), ALL],
    ),
    "values among keys": ("MultiHeadAttention(q, k)", QUERIES, HELD, [(0, 20), ALL, (10, 20), ALL]),
    "values and a cache": (
        "MultiHeadAttention(q, k, v, , , , k, p)",
        QUERIES,
        HELD,
        [(-9, 30), ALL, (-9, 30), ALL],
    ),
    "grouped values": ("GroupQueryAttention(q, k, v)", QUERIES, HELD, [(-4, 8), ALL, (-4, 8), ALL]),
    "grouped values and a cache": (
        "GroupQueryAttention(q, k, v, k, p)",
        QUERIES,
        HELD,
        [(-9, 30), ALL, (-9, 30), ALL],
    ),
    "quantised values": (
        f"GroupQueryAttention(q, k, v{', ' * 11}b)",
        QUERIES,
        HELD,
        [ALL, ALL, ALL, ALL],
    ),
    "turned pairs": (
        "RotaryEmbedding(x, t, c, s)",
        "float[1,2,5,4] x, int64[1] t, float[8,2] c, float[8,2] s",
        {"x": (-4, 3), "c": (0, 0.5), "s": (-1, 0)},
        [(-6, 6)],
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_output_ends_where_it_may(name: str) -> None:
    call, inputs, given, expected = ENDS[name]
    outputs = [f"y{number}" for number in range(len(expected))]
    constants = "float[2,2] w = {1, 2, 3, -4}, float[2,1,2] n = {1, 2, 3, -4}"
    body = f"{', '.join(outputs)} = com.microsoft.{call}"
    found = known_of(model_of(body, inputs, constants=constants, made="float[N] y0"), given)
    for output, both in zip(outputs, expected, strict=True):
        assert both is None or named(found, output)[:2] == pytest.approx(both, rel=2e-3), output
