"""Formulas that need float32 get it wherever they stand: in branches, loops and functions, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from cast_whole import cast_whole
from onnx import TensorProto, helper, numpy_helper, parser

import amp_rewrite as amp

rng = np.random.default_rng(0)


class Formula(NamedTuple):
    """A formula, its constants, what it is fed, and the error that float16 may make of it."""

    nodes: str
    inputs: Mapping[str, np.ndarray]
    constants: Mapping[str, Any]
    most: float = 0.01


BOX = np.full((1, 1, 3, 3), 1 / 9)
PLANE = 3 + 0.05 * rng.standard_normal((1, 1, 24, 24)).cumsum(3)
ROWS = rng.standard_normal((64, 16))
NEAR = rng.standard_normal((16, 32))
TOKENS = np.abs(rng.standard_normal((1, 1024, 16))) * 9
GRID = np.stack([*np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64)), np.ones((64, 64))])
PICTURE = rng.standard_normal((1, 1, 64, 1024)).cumsum(3)

FORMULAS = {
    "guided filter": Formula(
        "m = Conv(x, k) xx = Mul(x, x) e = Conv(xx, k) mm = Mul(m, m) v = Sub(e, mm) "
        "d = Add(v, eps) y = Div(v, d)",
        {"x": PLANE},
        {"k": BOX, "eps": 1e-3},
    ),
    "cosine distance": Formula(
        "p = Mul(x, z) s = ReduceSum<keepdims=0>(p, last) a = ReduceL2<keepdims=0>(x, last) "
        "b = ReduceL2<keepdims=0>(z, last) n = Mul(a, b) c = Div(s, n) y = Sub(one, c)",
        {"x": NEAR, "z": NEAR + 0.03 * rng.standard_normal(NEAR.shape)},
        {"last": np.array([1]), "one": 1.0},
        0.03,
    ),
    "year": Formula(
        "h = MatMul(x, w) s = Mul(h, half) y = Add(s, year)",
        {"x": ROWS},
        {"w": rng.standard_normal((16, 1)) / 4, "half": 0.5, "year": np.array([2024.0])},
    ),
    "linear attention": Formula(
        "t = Transpose<perm=[0,2,1]>(x) kv = MatMul(t, x) n = MatMul(x, kv) "
        "k = ReduceSum<keepdims=1>(x, middle) kt = Transpose<perm=[0,2,1]>(k) d = MatMul(x, kt) "
        "r = Reciprocal(d) y = Mul(n, r)",
        {"x": TOKENS},
        {"middle": np.array([1])},
    ),
    "log of a small kernel": Formula(
        "c = Conv(x, k) l = Log(c) y = Neg(l)",
        {"x": np.abs(rng.standard_normal((1, 1, 16, 16))) + 0.1},
        {"k": np.exp(-np.arange(9.0).reshape(1, 1, 3, 3) * 3) * 1e-6},
    ),
    "unbounded exponential": Formula(
        "e = Exp(x) h = MatMul(e, w) y = Log(h)",
        {"x": rng.uniform(0, 14, (8, 16))},
        {"w": np.abs(rng.standard_normal((16, 16)))},
    ),
    "homography": Formula(
        "p = MatMul(t, points) r = Reshape(p, planes) g = Transpose<perm=[0,2,3,1]>(r) "
        "y = GridSample<padding_mode=\"border\">(picture, g)",
        {"t": np.array([[[0.9, 0.01, 0.03], [0.0, 1.0, 0.01]]]), "picture": PICTURE},
        {"points": GRID.reshape(1, 3, -1), "planes": np.array([1, 2, 64, 64])},
        0.005,
    ),
    "places in attention": Formula(
        "s = MatMul(x, w) b = Add(s, places) a = Softmax<axis=-1>(b) y = MatMul(a, v)",
        {"x": rng.standard_normal((128, 16))},
        {
            "w": rng.standard_normal((16, 128)) / 4,
            "places": -0.5 * np.abs(np.subtract.outer(np.arange(128.0), np.arange(128.0)) - 300),
            "v": rng.standard_normal((128, 16)),
        },
    ),
}  # fmt: skip


def tensors_of(formula: Formula) -> list[onnx.TensorProto]:
    arrays = {name: np.asarray(value) for name, value in formula.constants.items()}
    typed = {n: a if a.dtype.kind == "i" else a.astype(np.float32) for n, a in arrays.items()}
    return [numpy_helper.from_array(array, name) for name, array in typed.items()]


def nodes_of(formula: Formula) -> list[onnx.NodeProto]:
    names = ", ".join(f"float {name}" for name in formula.inputs)
    graph = parser.parse_graph(f"g ({names}) => (float y) {{ {formula.nodes} }}")
    return list(graph.node)


def plain(formula: Formula) -> list[onnx.NodeProto]:
    return nodes_of(formula)


def in_branch(formula: Formula) -> list[onnx.NodeProto]:
    nodes = nodes_of(formula)
    nodes[-1].output[0] = "inner"
    result = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    then = helper.make_graph(nodes, "then", [], [result])
    first = next(iter(formula.inputs))
    other = helper.make_node("Identity", [first], ["inner_else"])
    missed = helper.make_tensor_value_info("inner_else", TensorProto.FLOAT, None)
    none = helper.make_graph([other], "else", [], [missed])
    return [helper.make_node("If", ["asked"], ["y"], then_branch=then, else_branch=none)]


def in_loop(formula: Formula) -> list[onnx.NodeProto]:
    nodes = nodes_of(formula)
    nodes[-1].output[0] = "inner"
    nodes.append(helper.make_node("Identity", ["go_on"], ["goes_on"]))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        "body",
        [info("turn", TensorProto.INT64, []), info("go_on", TensorProto.BOOL, [])],
        [info("goes_on", TensorProto.BOOL, []), info("inner", TensorProto.FLOAT, None)],
    )
    return [helper.make_node("Loop", ["turns", "asked"], ["y"], body=body)]


def in_function(formula: Formula) -> list[onnx.NodeProto]:
    return [helper.make_node("Formula", [*formula.inputs, *formula.constants], ["y"], domain="own")]


PLACES: Mapping[str, Callable[[Formula], list[onnx.NodeProto]]] = {
    "graph": plain,
    "branch": in_branch,
    "loop": in_loop,
    "function": in_function,
}


def model_of(formula: Formula, place: str, opset: int) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    inputs = [info(n, TensorProto.FLOAT, a.shape) for n, a in formula.inputs.items()]
    own = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    functions: list[onnx.FunctionProto] = []
    if place == "function":
        names = [*formula.inputs, *formula.constants]
        functions = [
            helper.make_function("own", "Formula", names, ["y"], nodes_of(formula), own[:1])
        ]
    constants = [
        *tensors_of(formula),
        numpy_helper.from_array(np.array(True), "asked"),
        numpy_helper.from_array(np.array(1), "turns"),
    ]
    output = info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(PLACES[place](formula), "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=own, functions=functions, ir_version=9)


def error_of(
    formula: Formula, model: onnx.ModelProto, low: Any, fed: type[Any] = np.float32
) -> float:
    """Return the root mean square error of float16 over the spread of the float32 result."""
    feeds = {name: array.astype(np.float32) for name, array in formula.inputs.items()}
    taken = {name: array.astype(fed) for name, array in feeds.items()}
    expected = np.asarray(amp.evaluate(model, feeds)["y"], np.float64)
    found = np.asarray(amp.evaluate(low, taken)["y"], np.float64)
    if not np.isfinite(found).all():
        return np.inf
    return float(np.sqrt(np.square(found - expected).mean()) / expected.std())


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_right_in_float16_wherever_it_stands(
    name: str, place: str, opset: int
) -> None:
    formula = FORMULAS[name]
    model = model_of(formula, place, opset)
    low = amp.rewrite(model, target="cuda", inline_functions=place == "function").model
    assert error_of(formula, model, low) < formula.most


@pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_wrong_where_all_of_it_is_float16(name: str) -> None:
    formula = FORMULAS[name]
    model = model_of(formula, "graph", 20)
    assert error_of(formula, model, cast_whole(model, "float16"), np.float16) > formula.most
