"""Demands go through whatever moves an element; float32 sums are not cast straight down."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from named_nodes import WAYS, reasons
from onnx import helper
from rewrite_text import assert_close, parse, rewritten

import amp_rewrite as amp

MOVERS = {
    "ScatterElements": "ScatterElements<axis = 2>(p, zeros, third)",
    "ScatterND": "ScatterND(p, place, pair)",
    "Resize": "Resize(p, , scales)",
    "Dropout": "Dropout(p)",
    "Elu": "Elu(p)",
    "PRelu": "PRelu(p, slope)",
    "AveragePool": "AveragePool<kernel_shape = [1]>(p)",
    "LpPool": "LpPool<kernel_shape = [1]>(p)",
    "ReduceProd": "ReduceProd(p, axis)",
    "Shrink": "Shrink<lambd = 0.5>(p)",
    "Cast": "Cast<to = 1>(p)",
}
CONSTANTS = """float[1,3,1] third = {0.3, 0.3, 0.3}, int64[1,3,1] zeros = {0, 0, 0},
    int64[1,2] place = {0, 0}, float[1,2] pair = {0.1, 0.2}, float[3] scales = {1, 2, 1},
    float[1] slope = {0.25}, int64[1] axis = {1}"""
GAUSSIAN = np.random.default_rng(0).standard_normal((2, 16))


def row(array: np.ndarray) -> str:
    return ", ".join(f"{number:.5g}" for number in array.ravel())


@pytest.mark.share(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mover", MOVERS)
def test_a_demand_for_an_angle_goes_through_what_moves_it(mover: str, way: str) -> None:
    layer = np.random.default_rng(1).standard_normal((16, 4)) / 4
    source = parse(
        f"""g (float[1,3,2] p) => (float[1,n,4] y) <{CONSTANTS},
            float[2,16] g = {{{row(GAUSSIAN * 6.28)}}}, float[16,4] w = {{{row(layer)}}}>
        {{ m = {MOVERS[mover]} [angle] a = MatMul(m, g) s = Sin(a) [layer] y = MatMul(s, w) }}"""
    )
    result = rewritten(source, **WAYS[way])
    assert reasons(result)["angle"] == "demand"
    assert reasons(result)["layer"] == "allow-list"
    p = np.random.default_rng(2).random((1, 3, 2)).astype(np.float32)
    assert_close(result, source, {"p": p})


HUB = """g (float[n,4] h, int64[e] sources, int64[e,1] targets) => (float[n,4] y)
    <float[1] zero = {0}, float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
    { messages = Gather(h, sources) s = Shape(h) empty = Expand(zero, s)
      sums = ScatterND<reduction = "add">(empty, targets, messages)
      TAIL }"""


def hub_feeds() -> dict[str, np.ndarray]:
    """Return a graph of two nodes with 30,000 edges to the first."""
    return {
        "h": np.array([[3, 1, 2, 4], [1, 1, 1, 1]], np.float32),
        "sources": np.zeros(30000, np.int64),
        "targets": np.zeros((30000, 1), np.int64),
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "tail",
    [
        "[layer] y = MatMul(sums, w)",
        "both = Add(sums, h) r = Relu(both) [layer] y = MatMul(r, w)",
        "a = MatMul(sums, w) r = Relu(a) [layer] y = MatMul(r, w)",
    ],
)
def test_a_node_with_many_edges_has_a_finite_sum(tail: str, way: str) -> None:
    source = parse(HUB.replace("TAIL", tail))
    result = rewritten(source, **WAYS[way])
    assert_close(result, source, hub_feeds())
    if WAYS[way]["precision"] == "float16":
        assert reasons(result)["layer"] == "unbounded-sum"


def test_a_sum_that_is_divided_by_its_length_may_be_cast() -> None:
    tail = "n = Size(sources) f = Cast<to = 1>(n) mean = Div(sums, f) [layer] y = MatMul(mean, w)"
    source = parse(HUB.replace("TAIL", tail))
    result = rewritten(source)
    assert reasons(result)["layer"] == "allow-list"
    assert_close(result, source, hub_feeds())


@pytest.mark.parametrize("way", WAYS)
def test_the_spectrum_of_samples_is_finite(way: str) -> None:
    source = parse(
        """g (float[1,256,1] x) => (float[1,256,2] y)
            <float[2,2] w = {1, 0, 0, 1}, int64 axis = {1}>
        { spectrum = DFT(x, , axis) y = MatMul(spectrum, w) }"""
    )
    result = rewritten(source, **WAYS[way])
    x = 1000 * np.cos(np.arange(256, dtype=np.float32) / 8).reshape(1, 256, 1)
    assert_close(result, source, {"x": x})


@pytest.mark.parametrize(
    "node",
    [
        "y = EyeLike<k = 1, dtype = 1>(x)",
        "f = Cast<to = 1>(x) y = MeanVarianceNormalization<axes = [0]>(f)",
        "y = MelWeightMatrix(n, n, n, low, high)",
    ],
)
def test_what_onnx_runtime_does_not_load_in_float16_is_never_forced(node: str) -> None:
    constants = "int64 n = {8}, float low = {0}, float high = {4}"
    source = parse(f"g (int64[4,5] x) => (float[a,b] y) <{constants}> {{ {node} }}")
    result = rewritten(source, target="schema", level="UNSAFE_FORCE_ALL")
    assert result.report.summary.nodes_converted == 0
    onnxruntime.InferenceSession(
        amp.to_proto(result.model).SerializeToString(), providers=["CPUExecutionProvider"]
    )


@pytest.mark.share(9, each="way")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_inputs", [0, 1])
def test_a_node_without_its_inputs_is_no_stumbling_block(n_inputs: int, way: str) -> None:
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and s.min_input}
    values = {n: helper.make_tensor_value_info(n, 1, [2, 2]) for n in ("x", "b", "y")}
    for name in sorted(names):
        nodes = [
            helper.make_node("MatMul", ["x", "x"], ["a"]),
            helper.make_node(name, ["a"][:n_inputs], ["b"]),
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Floor", ["c"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "g", [values["x"]], [values["y"]], [], "", [values["b"]])
        opsets = [helper.make_opsetid("", 22)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        try:
            result = amp.rewrite(model, **WAYS[way])
        except amp.AmpError:
            continue  # one that is refused, with a word
        assert len(result.report.nodes) >= len(nodes), name
