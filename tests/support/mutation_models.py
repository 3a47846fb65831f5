"""The models that mutations start from: small, but with what real ones have in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
from backend_cases import all_cases
from onnx import TensorProto, helper, numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.cli.demo import demo_model
from amp_rewrite.dtypes import Precision

BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, bool c) => (float[N, 4] y)
    <float[4] w = {1, 2, 3, 4}, float[N, 4] h> {
        h = Add (x, w)
        y = If (c) <
            then_branch = t () => (float[N, 4] a) { b = Mul (h, w)  a = Relu (b) },
            else_branch = e () => (float[N, 4] a) { a = Softmax <axis: int = 1> (h) }>
    }"""
FUNCTION = """<ir_version: 9, opset_import: ["": 18, "local": 1], producer_name: "p">
    g (float[4] x) => (float[4] y) { t = local.twice <k: float = 2.0> (x)  y = Identity (t) }
    <domain: "local", opset_import: ["": 18]>
    twice <k> (a) => (b) { c = Constant <value_float: float = @k> ()  b = Mul (a, c) }"""
LOOP = """<ir_version: 8, opset_import: ["": 17]>
    g (int64 n, bool c, float[2] s) => (float[2] last, float[K, 2] all) {
        last, all = Loop (n, c, s) <body = b (int64 i, bool k, float[2] v)
            => (bool k2, float[2] v2, float[2] o) {
                k2 = Identity (k)  v2 = Add (v, s)  o = Exp (v2) }>
    }"""
SCAN = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2, 2] s, float[5, 2, 2] xs) => (float[2, 2] last, float[5, 2, 2] all)
    <float[2, 2] w = {1, 2, 3, 4}> {
        last, all = Scan <num_scan_inputs: int = 1, body = b (float[2, 2] v, float[2, 2] x)
            => (float[2, 2] v2, float[2, 2] o) {
                p = MatMul (x, w)  v2 = Add (v, p)  o = Tanh (v2) }> (s, xs)
    }"""
ATTENTION = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
    g (float[B, 4, 8] x, float[8] gain) => (float[B, 4, 8] y, float16[B, 4, 8] low)
    <float[8, 8] wq, float[8, 8] wk, float scale = {0.125}, float epsilon = {0.00001},
     int64[1] axes = {-1}, float[4, 4] mask> {
        mean = ReduceMean <keepdims: int = 1> (x, axes)
        centered = Sub (x, mean)
        square = Mul (centered, centered)
        variance = ReduceMean (square, axes)
        safe = Add (variance, epsilon)
        deviation = Sqrt (safe)
        n = Div (centered, deviation)
        q = MatMul (n, wq)
        k = MatMul (n, wk)
        kt = Transpose <perm = [0, 2, 1]> (k)
        scores = MatMul (q, kt)
        scaled = Mul (scores, scale)
        masked = Add (scaled, mask)
        weights = Softmax <axis: int = -1> (masked)
        mixed = MatMul (weights, x)
        odd = own.Thing <alpha: float = 0.5, names = ["a", "b"]> (mixed)
        y = LayerNormalization <axis: int = -1> (odd, gain)
        low = Cast <to: int = 10> (mixed)
    }"""
CONVOLUTION = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 3, 8, 8] x) => (float[1, 4] y, int64[1, 1] best)
    <float[4, 3, 3, 3] w, float[4] b, float[4] mean, float[4] variance, int64[2] flat = {1, -1},
     float[4] sizes = {1, 1, 2, 2}, int64[1] k = {1}> {
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w, b)
        n = BatchNormalization (c, b, b, mean, variance)
        r = Clip (n)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        u = Resize <mode = "nearest"> (p, , sizes)
        a = GlobalAveragePool (u)
        y = Reshape (a, flat)
        values, best = TopK (y, k)
    }"""
QUANTIZED = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 4] x) => (float[2, 4] y)
    <float s = {0.1}, int8 z = {0}, int8[4, 4] w, float[4] ws = {0.1, 0.2, 0.3, 0.4},
     int8[4] wz = {0, 0, 0, 0}> {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        dw = DequantizeLinear <axis: int = 1> (w, ws, wz)
        m = MatMul (d, dw)
        r = Relu (m)
        q2 = QuantizeLinear (r, s, z)
        y = DequantizeLinear (q2, s, z)
    }"""
RECURRENT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[3, 1, 2] x) => (float[3, 1, 1, 2] y, float[1, 1, 2] h)
    <float[1, 8, 2] w, float[1, 8, 2] r, float[1, 16] b> {
        y, h, c = LSTM <hidden_size: int = 2, activations = ["Sigmoid", "Tanh", "Tanh"]>
            (x, w, r, b)
    }"""
CLASSIFIER = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x, int64[N] t) => (float[N, 3] logits, float loss)
    <float[4, 4] w, float[4] b, float[4, 3] v, float ratio = {0.5}, bool on = {1}> {
        h = MatMul (x, w)
        p = Add (h, b)
        r = Relu (p)
        d = Dropout (r, ratio, on)
        logits = MatMul (d, v)
        loss = SoftmaxCrossEntropyLoss (logits, t)
    }"""
TEXTS = {
    "branches": BRANCHES,
    "function": FUNCTION,
    "loop": LOOP,
    "scan": SCAN,
    "attention": ATTENTION,
    "convolution": CONVOLUTION,
    "quantized": QUANTIZED,
    "recurrent": RECURRENT,
}
BACKEND = (
    *("test_loop11", "test_loop16_seq_none", "test_scan_sum", "test_if_opt", "test_if_seq"),
    *("test_sequence_map_identity_1_sequence_1_tensor", "test_optional_get_element_sequence"),
    *(
        "test_range_float_type_positive_delta_expanded",
        "test_layer_normalization_2d_axis0_expanded",
    ),
    *("test_training_dropout", "test_gru_defaults", "test_adam"),
    *("test_attention_4d_with_past_and_present_expanded", "test_cast_FLOAT_to_FLOAT8E4M3FN"),
    *("test_constantofshape_float_ones", "test_einsum_batch_matmul", "test_eyelike_with_dtype"),
)
"""Backend test models: control flow of several opsets, containers, functions, odd types."""


def filled(text: str, seed: int = 0) -> onnx.ModelProto:
    """Parse a model; an initializer that the text only declares gets random values."""
    model = parser.parse_model(text)
    rng = np.random.default_rng(seed)
    defined = {name for node in model.graph.node for name in node.output}
    for info in [info for info in model.graph.value_info if info.name not in defined]:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        values = (4 * rng.standard_normal(shape)).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(values, info.name))
        model.graph.value_info.remove(info)
    return model


def sparse(name: str) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), name)
    return helper.make_sparse_tensor(
        values, numpy_helper.from_array(np.array([0, 3], np.int64), ""), [4]
    )


def rich_model() -> onnx.ModelProto:
    """A model with about every message of ONNX in it."""
    model = parser.parse_model(BRANCHES)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "s"))
    graph.node.append(helper.make_node("Constant", [], ["k"], sparse_value=sparse("")))
    graph.node.append(helper.make_node("Other", ["s", "k"], ["z"], domain="own", strings=["a"]))
    graph.quantization_annotation.add(tensor_name="h").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    info = model.training_info.add()
    info.algorithm.CopyFrom(graph)
    info.update_binding.add(key="w", value="h")
    outside = graph.initializer.add(name="e", data_type=TensorProto.FLOAT, dims=[4])
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="weights.data")
    outside.external_data.add(key="offset", value="0")
    outside.external_data.add(key="length", value="16")
    zip_map = graph.output.add(name="z").type.sequence_type.elem_type.map_type
    zip_map.key_type = TensorProto.INT64
    zip_map.value_type.tensor_type.elem_type = TensorProto.FLOAT
    strings = graph.initializer.add(name="str", data_type=TensorProto.STRING, dims=[2])
    strings.string_data.extend([b"a", b"\xff"])
    graph.initializer.append(helper.make_tensor("nibbles", TensorProto.INT4, [3], [1, 2, -3]))
    return model


def training_step(optimizer: Any = None, **options: Any) -> onnx.ModelProto:
    """Return a saved step: a classifier with Dropout, and an If around its update."""
    loss = amp.value(amp.load(filled(CLASSIFIER)), "loss")
    optimizer = optimizer or amp.LossScaleOptimizer(amp.optimizers.Adam(0.01))
    targets = {"logits": "logits", "labels": "t"}
    return amp.to_proto(amp.build_step(optimizer.minimize(loss), targets=targets, **options))


def rewritten(text: str, precision: Precision) -> onnx.ModelProto:
    return amp.to_proto(amp.rewrite(filled(text), precision=precision, target="schema").model)


SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: (lambda text=text: filled(text)) for name, text in TEXTS.items()},
    "rich": rich_model,
    "step": training_step,
    "low step": lambda: training_step(amp.optimizers.GradientDescent(0.1), precision="float16"),
    "rewritten attention": lambda: rewritten(ATTENTION, "float16"),
    "rewritten loop": lambda: rewritten(LOOP, "bfloat16"),
}
"""Models of a few nodes, and steps of a few dozen."""


@cache
def backend_cases() -> dict[str, onnx.ModelProto]:
    found = {case.name: case.model for case in all_cases() if case.name in BACKEND}
    return {name: model for name, model in found.items() if model is not None}


@cache
def model(name: str) -> onnx.ModelProto:
    """Return the model of a name; not to be changed."""
    if name == "demo":
        return demo_model()
    return SMALL[name]() if name in SMALL else backend_cases()[name]


NAMES = (*SMALL, "demo", *BACKEND)
