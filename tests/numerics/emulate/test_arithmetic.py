"""Emulated operators give the numbers that the low type gives, bit for bit."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from amp_rewrite.dtypes import BFLOAT16, LOW, DType
from amp_rewrite.numerics.emulate import evaluate

RNG_SIZE = 4096
UNARY = ("Abs", "Ceil", "Floor", "Identity", "Neg", "Reciprocal", "Relu", "Round", "Sign", "Sqrt")
BINARY = ("Add", "Div", "Max", "Min", "Mul", "Sub")

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
"""The reference computes with numpy, which warns of the overflows that these tests are about."""


def model_of(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int]) -> onnx.ModelProto:
    shapes = {
        name: helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim
        )
        for name, a in inputs.items()
    }
    ends = [helper.make_tensor_value_info(name, t, None) for name, t in outputs.items()]
    graph = helper.make_graph(nodes, "g", list(shapes.values()), ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def edge_values(dtype: DType, seed: int) -> np.ndarray:
    """Random bit patterns, which hold subnormals and NaN, and the values where rules change."""
    bits = np.random.default_rng(seed).integers(0, 1 << 16, RNG_SIZE, np.uint16)
    edges = [0.0, -0.0, 1.0, dtype.max, -dtype.max, np.inf, -np.inf, np.nan]
    edges += [dtype.smallest_normal, dtype.smallest_subnormal, -dtype.smallest_subnormal, 1000.0]
    return np.concatenate([bits.view(dtype.numpy), np.array(edges).astype(dtype.numpy)])


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32))
    return (a.view(np.uint16) == b.view(np.uint16)) | nan


def steps_apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return how many representable numbers lie between two arrays of one low type."""

    def line(x: np.ndarray) -> np.ndarray:
        bits = x.view(np.int16).astype(np.int32)
        return np.where(bits < 0, -(bits & 0x7FFF), bits)

    return np.where(same_bits(a, b), 0, np.abs(line(a) - line(b)))


def emulated(op: str, dtype: DType, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    feeds = dict(zip("ab", arrays, strict=False))
    node = helper.make_node(op, list(feeds), ["y"], **attributes)
    result = evaluate(model_of([node], feeds, {"y": dtype.ir.value}), feeds)["y"]
    assert result.dtype == dtype.numpy
    return result


def reference(op: str, dtype: DType, *arrays: np.ndarray) -> np.ndarray:
    feeds = dict(zip("ab", arrays, strict=False))
    model = model_of([helper.make_node(op, list(feeds), ["y"])], feeds, {"y": dtype.ir.value})
    results: Any = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(results[0])


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
@pytest.mark.parametrize("op", UNARY)
def test_a_unary_operator_is_bit_equal_to_the_reference(op: str, dtype: DType) -> None:
    a = edge_values(dtype, 1)
    if op in ("Sqrt", "Relu", "Sign"):  # of NaN and negative numbers the reference says otherwise
        a = np.abs(a[~np.isnan(a.astype(np.float32))])
    assert same_bits(emulated(op, dtype, a), reference(op, dtype, a)).all()


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
@pytest.mark.parametrize("op", BINARY)
def test_a_binary_operator_is_bit_equal_to_the_reference(op: str, dtype: DType) -> None:
    a, b = edge_values(dtype, 2), edge_values(dtype, 3)[::-1].copy()
    if op in ("Max", "Min"):  # which zero of two is the larger is left open
        zero = (a == 0) & (b == 0)
        a, b = a[~zero], b[~zero]
    assert same_bits(emulated(op, dtype, a, b), reference(op, dtype, a, b)).all()


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_a_matrix_product_is_within_one_rounding(dtype: DType) -> None:
    rng = np.random.default_rng(7)
    a = rng.standard_normal((17, 300)).astype(dtype.numpy)
    b = rng.standard_normal((300, 13)).astype(dtype.numpy)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    found = emulated("MatMul", dtype, a, b).astype(np.float64)
    # Half a step of rounding, and what float32 sums of 300 terms lose.
    slack = 300 * np.finfo(np.float32).eps * (np.abs(a).astype(float) @ np.abs(b).astype(float))
    assert (np.abs(found - exact) <= np.abs(exact) * dtype.epsilon / 2 + slack).all()


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_overflow_starts_half_a_step_above_the_largest_number(dtype: DType) -> None:
    overflows = np.float32(dtype.overflow)
    assert dtype is BFLOAT16 or overflows == 65520
    x = np.array([np.nextafter(overflows, np.float32(0)), overflows, -overflows], np.float32)
    cast = helper.make_node("Cast", ["x"], ["y"], to=dtype.ir.value)
    y = evaluate(model_of([cast], {"x": x}, {"y": dtype.ir.value}), {"x": x})["y"]
    assert y.astype(np.float64).tolist() == [dtype.max, np.inf, -np.inf]


@pytest.mark.parametrize("emulate", [True, False])
def test_a_product_that_overflows_stays_infinite_only_if_emulated(emulate: bool) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Div", ["a", "x"], ["b"]),
        helper.make_node("Div", ["b", "x"], ["y"]),
    ]
    x = np.array([1000], np.float16)
    model = model_of(nodes, {"x": x}, {"y": TensorProto.FLOAT16})
    assert evaluate(model, {"x": x}, emulate=emulate)["y"] == (np.inf if emulate else 1)


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
def test_rounding_pairs_survive_every_optimisation_level(dtype: DType, level: int) -> None:
    import onnxruntime as ort

    nodes = []
    for source, end in (("x", "rx"), ("k", "rk"), ("p", "y")):
        nodes += [
            helper.make_node("Cast", [source], [f"{end}_low"], to=dtype.ir.value),
            helper.make_node("Cast", [f"{end}_low"], [end], to=TensorProto.FLOAT),
        ]
    nodes.insert(4, helper.make_node("Mul", ["rx", "rk"], ["p"]))
    x = np.random.default_rng(8).standard_normal(1000).astype(np.float32)
    model = model_of(nodes, {"x": x}, {"y": TensorProto.FLOAT})
    model.graph.initializer.append(helper.make_tensor("k", TensorProto.FLOAT, [1], [0.3]))
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = [
        levels.ORT_DISABLE_ALL,
        levels.ORT_ENABLE_BASIC,
        levels.ORT_ENABLE_EXTENDED,
        getattr(levels, "ORT_ENABLE_LAYOUT", levels.ORT_ENABLE_ALL),
        levels.ORT_ENABLE_ALL,
    ][level]
    session: Any = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def rounded(a: np.ndarray) -> np.ndarray:
        return a.astype(dtype.numpy).astype(np.float32)

    expected = rounded(rounded(x) * rounded(np.array([0.3], np.float32)))
    assert (session.run(None, {"x": x})[0] == expected).all()


def chunked(parts: list[np.ndarray], dtype: DType) -> np.ndarray:
    total = parts[0].astype(dtype.numpy)
    for part in parts[1:]:
        total = (total.astype(np.float32) + part).astype(dtype.numpy)
    return total


@pytest.mark.parametrize("dtype", LOW.values(), ids=LOW)
@pytest.mark.parametrize("depth", [1, 16, 17, 100])
def test_a_low_accumulation_rounds_after_every_16_terms(dtype: DType, depth: int) -> None:
    rng = np.random.default_rng(9)
    a = rng.standard_normal((3, depth)).astype(dtype.numpy)
    b = rng.standard_normal((depth, 4)).astype(dtype.numpy)
    x, y = a.astype(np.float32), b.astype(np.float32)
    starts = range(0, depth, 16)

    def run(op: str, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
        feeds = dict(zip("ab", arrays, strict=False))
        node = helper.make_node(op, list(feeds), ["y"], **attributes)
        model = model_of([node], feeds, {"y": dtype.ir.value})
        model.opset_import[0].version = 17
        return evaluate(model, feeds, accumulate_low=[op])["y"]

    product = chunked([x[:, i : i + 16] @ y[i : i + 16] for i in starts], dtype)
    assert (run("MatMul", a, b) == product).all()
    assert (run("MatMul", a, b[:, 0].copy()) == product[:, 0]).all()
    assert (run("Gemm", a, b.T.copy(), transB=1) == product).all()
    mean = chunked([x[:, i : i + 16].sum(1) for i in starts], dtype).astype(np.float32) / depth
    found = run("ReduceMean", a, axes=[1], keepdims=0)
    assert steps_apart(found, mean.astype(dtype.numpy)).max() <= 1
