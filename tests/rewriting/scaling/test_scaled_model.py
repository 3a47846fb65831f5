"""Constants and attributes times powers of two: the model computes the same in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.scaling.scaled_model import scaled_flat
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import solve

FRONT = "w = Constant<value_float = 3.0>() v = Mul(x, w) "
BEHIND = " u = Constant<value_float = 0.7>() z = Mul(y, u)"
FOUR = "s = Constant<value_floats = [1.0, 2.0, 0.3, 4.0]>() "


def scaled(model: onnx.ModelProto, limit: float = -6.0, value: str = "v") -> FlatGraph:
    """Return a model in which a value is multiplied by 2^limit, and all that has to follow."""
    flat = read_source(model, inline_functions=False)
    system = scale_system(flat, infer(flat))
    found = solve(system, {flat.value_names.index(value): limit})
    assert found.exponents[flat.value_names.index(value)] == limit
    return scaled_flat(system, found.exponents)


def outputs(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [*session.run(None, feeds)]


def parsed(body: str, more: str = "") -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'
    text = f"{head} m (float[2,4] x{more}) => (float[A,B] z) {{ {FRONT}{body}{BEHIND} }}"
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


CASES = {
    "bias": "b = Constant<value_float = 0.3>() y = Add(v, b)",
    "bias of a product": FOUR + "k = Constant<value_ints = [4, 1]>() m = Reshape(s, k) "
    "b = Constant<value_floats = [0.3]>() y = Gemm(v, m, b)",
    "alpha and beta": FOUR + "k = Constant<value_ints = [4, 1]>() m = Reshape(s, k) "
    "b = Constant<value_floats = [0.3]>() y = Gemm<alpha = 0.5, beta = 0.1>(v, m, b)",
    "relu squared": "r = Relu(v) y = Mul(r, r)",
    "clip": "a = Constant<value_float = -1.5>() b = Constant<value_float = 1.5>() "
    "y = Clip(v, a, b)",
    "one-sided clip": "b = Constant<value_float = 1.5>() y = Clip(v, , b)",
    "shrink": "y = Shrink<lambd = 0.9, bias = 0.1>(v)",
    "shrink by default": "y = Shrink(v)",
    "threshold": "y = ThresholdedRelu<alpha = 0.8>(v)",
    "leaky relu": "y = LeakyRelu<alpha = 0.3>(v)",
    "slope": FOUR + "y = PRelu(v, s)",
    "comparison": "b = Constant<value_float = 0.3>() c = Less(v, b) y = Where(c, b, v)",
    "pad": "k = Constant<value_ints = [0, 1, 0, 1]>() b = Constant<value_float = 0.3>() "
    "y = Pad(v, k, b)",
    "one hot": "i = ArgMax<axis = 1, keepdims = 0>(v) k = Constant<value_int = 4>() "
    "b = Constant<value_floats = [0.3, 0.9]>() o = OneHot(i, k, b) y = Add(o, v)",
    "scatter": "i = Constant<value_ints = [1]>() j = Constant<value_ints = [1, 1]>() "
    "k = Reshape(i, j) b = Constant<value_floats = [0.3]>() t = Reshape(b, j) "
    "y = ScatterElements<axis = 1>(v, k, t)",
    "fill": "k = Constant<value_ints = [2, 4]>() "
    "f = ConstantOfShape<value = float[1] {0.3}>(k) y = Add(v, f)",
    "zero fill": "k = Constant<value_ints = [2, 4]>() f = ConstantOfShape(k) y = Max(v, f)",
    "layer norm": FOUR + "y = LayerNormalization(v, s)",
    "layer norm with a bias": FOUR + "y = LayerNormalization<epsilon = 0.1>(v, s, s)",
    "fused rms norm": FOUR + "y = SimplifiedLayerNormalization<epsilon = 0.1>(v, s)",
    "skip norm": FOUR + "k = Constant<value_ints = [1, 2, 4]>() t = Reshape(v, k) "
    "y = com.microsoft.SkipLayerNormalization<epsilon = 0.1>(t, t, s, s, s)",
    "skip rms norm": FOUR + "k = Constant<value_ints = [1, 2, 4]>() t = Reshape(v, k) "
    "n, a, b, h = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.1>(t, t, s) "
    "i = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.1>(h, t, s) y = Add(n, i)",
    "instance norm": "k = Constant<value_ints = [1, 2, 4]>() t = Reshape(v, k) "
    "a = Constant<value_floats = [1.0, 2.0]>() y = InstanceNormalization<epsilon = 0.1>(t, a, a)",
    "batch norm": FOUR + "y = BatchNormalization<epsilon = 0.1>(v, s, s, s, s)",
    "length one": "y = LpNormalization<axis = 1>(v)",
    "rms norm by powers": "p = Constant<value_float = 2.0>() a = Pow(v, p) m = ReduceMean(a) "
    "e = Constant<value_float = 0.1>() n = Add(m, e) r = Sqrt(n) y = Div(v, r)",
    "rms norm by reciprocals": "a = Mul(v, v) m = ReduceMean(a) e = Constant<value_float = 0.1>() "
    "n = Add(e, m) r = Sqrt(n) i = Reciprocal(r) y = Mul(i, v)",
    "quotient of sums": "a = Abs(v) t = ReduceSum(a) e = Constant<value_float = 0.1>() "
    "n = Max(t, e) y = Div(v, n)",
    "softmax behind a factor": "c = Constant<value_float = 0.25>() q = Mul(v, c) y = Softmax(q)",
    "gate": "g = Sigmoid(x) y = Mul(v, g)",
    "quantised weights": "k = Constant<value = int8[4,2] {1, 2, 3, -4, 5, 6, 7, 8}>() "
    "d = Constant<value_float = 0.1>() q = DequantizeLinear(k, d) y = MatMul(v, q)",
    "quantised data": "d = Constant<value_float = 0.1>() o = Constant<value = int8 {0}>() "
    "q = QuantizeLinear(v, d, o) y = DequantizeLinear(q, d, o)",
    "top": "k = Constant<value_ints = [2]>() y, i = TopK(v, k)",
    "double": "d = Cast<to = 11>(v) e = Cast<to = 1>(d) y = Relu(e)",
    "einsum": FOUR + 'y = Einsum<equation = "ab,b->a">(v, s)',
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", CASES)
def test_the_scaled_model_computes_the_same_in_float32(name: str):
    model = parsed(CASES[name])
    made = scaled(model)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    for factor in (1.0, 0.01):  # where an epsilon that was forgotten shows
        before, after = (outputs(m, {"x": factor * x}) for m in (model, made.proto))
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_model_that_was_given_is_left_alone():
    model = parsed(CASES["layer norm"])
    before = model.SerializeToString(deterministic=True)
    made = scaled(model)
    assert model.SerializeToString(deterministic=True) == before
    assert made.proto.SerializeToString(deterministic=True) != before


def test_no_node_is_added_and_names_stay():
    model = parsed(CASES["rms norm by powers"])
    made = scaled(model)
    assert [n.op_type for n in made.proto.graph.node] == [n.op_type for n in model.graph.node]
    assert made.value_names == read_source(model, inline_functions=False).value_names


def test_bounds_that_are_attributes_move_along():
    three = "w = Constant<value = float {3.0}>() v = Mul(x, w) "
    text = (
        f'<ir_version: 9, opset_import: ["" : 9]> m (float[2,4] x) => (float[2,4] z) '
        f"{{ {three} y = Clip<min = -1.5, max = 1.5>(v) z = Mul(y, w) }}"
    )
    made = scaled(onnx.parser.parse_model(text))
    clip = next(n for n in made.proto.graph.node if n.op_type == "Clip")
    assert {a.name: a.f for a in clip.attribute} == {"min": -1.5 * 2**-6, "max": 1.5 * 2**-6}


def test_what_an_attribute_pads_with_moves_along():
    text = (
        '<ir_version: 9, opset_import: ["" : 9]> m (float[2,4] x) => (float[2,5] z) '
        "{ w = Constant<value = float {3.0}>() v = Mul(x, w) "
        "y = Pad<pads = [0, 1, 0, 0], value = 0.3>(v) z = Mul(y, w) }"
    )
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    before, after = (outputs(m, {"x": x}) for m in (model, scaled(model).proto))
    np.testing.assert_array_equal(before, after)


def with_initializers(ir_version: int, dtype: Any = np.float32) -> onnx.ModelProto:
    """Return x w + b, then a norm and times w again: one w for two readers of other exponents."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    arrays = {"w": [3.0], "b": [1e-4], "s": [1.0] * 4}
    held = [numpy_helper.from_array(np.array(a, dtype), name) for name, a in arrays.items()]
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["v"]),
        helper.make_node("LayerNormalization", ["v", "s"], ["y"]),
        helper.make_node("Mul", ["y", "w"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(n, number, [2, 4]) for n in "xz"]
    infos = [helper.make_tensor_value_info(t.name, number, t.dims) for t in held]
    given = [ends[0], *(infos if ir_version < 4 else ())]
    graph = helper.make_graph(nodes, "g", given, [ends[1]], held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_constant_with_another_reader_is_copied_for_the_one_that_needs_it(ir_version: int):
    model = with_initializers(ir_version)
    made = scaled(model, value="v")
    held = {t.name: numpy_helper.to_array(t).reshape(-1) for t in made.proto.graph.initializer}
    (copy,) = held.keys() - {"w", "b", "s"}
    assert (held["w"][0], held[copy][0], held["b"][0]) == (3.0, 3 * 2**-6, np.float32(1e-4) * 2**-6)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    onnx.checker.check_model(made.proto)
    np.testing.assert_array_equal(outputs(model, {"x": x}), outputs(made.proto, {"x": x}))


def test_a_constant_in_16_bits_that_would_lose_digits_becomes_float32_behind_a_cast():
    made = scaled(with_initializers(8, np.float16))
    flat = made
    wide = [t for t in made.proto.graph.initializer if t.data_type == TensorProto.FLOAT]
    (cast,) = flat.nodes_of("Cast")
    assert [numpy_helper.to_array(t)[0] for t in wide] == [np.float32(np.float16(1e-4)) * 2**-6]
    assert flat.value_names[flat.outputs_of(cast)[0]] == "b"
    onnx.checker.check_model(made.proto)


def test_a_long_constant_is_multiplied_when_it_is_read_and_is_saved_so(tmp_path: Any):
    weights = np.random.default_rng(0).normal(size=(4, 2048)).astype(np.float32)
    model = parsed("y = MatMul(v, big)")
    model.graph.initializer.append(numpy_helper.from_array(weights, "big"))
    model.graph.node[-2].name = ""
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    flat = read_source(tmp_path / "m.onnx", inline_functions=False)
    system = scale_system(flat, infer(flat))
    names = flat.value_names
    found = solve(system, {names.index("y"): -6.0})
    made = scaled_flat(system, found.exponents)
    big = made.value_names.index("big")
    tensor = made.tensors.get(big)
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), np.ldexp(weights, -6))
    stream = tensor.stream
    np.testing.assert_array_equal(np.concatenate([*stream.blocks()]), np.ldexp(weights, -6).ravel())


def test_unnamed_nodes_keep_the_names_that_they_were_given():
    model = with_initializers(8)
    flat, made = read_source(model, inline_functions=False), scaled(model)
    assert made.node_names == flat.node_names
    assert ABSENT not in made.producer or made.producer[0] == ABSENT


def test_constants_inside_branches_are_scaled_there():
    body = (
        "y = If (c) <then_branch = t () => (float[2,4] a) "
        "{ p = Constant<value_float = 0.3>() a = Add(v, p) }, "
        "else_branch = e () => (float[2,4] b) "
        "{ q = Constant<value_float = 0.6>() b = Sub(v, q) }>"
    )
    model = parsed(body, more=", bool c")
    made = scaled(model)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    for c in (True, False):
        feeds = {"x": x, "c": np.array(c)}
        np.testing.assert_array_equal(outputs(model, feeds), outputs(made.proto, feeds))
