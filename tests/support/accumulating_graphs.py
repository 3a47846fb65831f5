"""Graphs in float16 whose result shows in which order, and in which type, a target adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.numerics.emulate.low_sums import kept_low

Array = np.ndarray[Any, Any]

HEADER = '<ir_version: 9, opset_import: ["" : 20]>'
SUMS = kept_low(targets.find("webgpu"), FLOAT16)

GRAPHS = {
    "a product": (
        "g (float16[7,300] x, float16[300,9] w) => (float16[7,9] y) { y = MatMul(x, w) }"
    ),
    "stacked products": (
        "g (float16[2,3,5,30] x, float16[30,9] w) => (float16[2,3,5,9] y) { y = MatMul(x, w) }"
    ),
    "a Gemm by four": (
        "g (float16[7,300] x, float16[9,300] w, float16[9] b) => (float16[7,9] y)"
        "{ y = Gemm<transB: int = 1, alpha: float = 0.3>(x, w, b) }"
    ),
    "a Gemm one by one": (
        "g (float16[301,7] x, float16[9,301] w, float16[9] b) => (float16[7,9] y)"
        "{ y = Gemm<transA: int = 1, transB: int = 1, beta: float = 0.3>(x, w, b) }"
    ),
    "a Conv": (
        "g (float16[2,16,9,9] x, float16[8,16,3,3] w, float16[8] b) => (float16[2,8,5,5] y)"
        "{ y = Conv<strides: ints = [2, 2], pads: ints = [1, 1, 1, 1]>(x, w, b) }"
    ),
    "a depthwise Conv": (
        "g (float16[1,16,9,9] x, float16[16,1,3,3] w, float16[16] b) => (float16[1,16,9,9] y)"
        '{ y = Conv<group: int = 16, auto_pad: string = "SAME_UPPER">(x, w, b) }'
    ),
    "a dilated Conv in groups": (
        "g (float16[1,16,9,9] x, float16[8,8,3,3] w) => (float16[1,8,5,5] y)"
        "{ y = Conv<group: int = 2, dilations: ints = [2, 2]>(x, w) }"
    ),
    "a Conv of one axis": (
        "g (float16[1,16,40] x, float16[8,16,5] w, float16[8] b) => (float16[1,8,36] y)"
        "{ y = Conv(x, w, b) }"
    ),
    "a Conv of a computed weight": (
        "g (float16[1,16,9,9] x, float16[8,8,3,3] v, float16[8] b) => (float16[1,8,7,7] y)"
        "{ w = Neg(v) y = Conv<group: int = 2, kernel_shape: ints = [3, 3]>(x, w, b) }"
    ),
    "a batch normalization": (
        "g (float16[4,16,9,9] x, float16[16] s, float16[16] b, float16[16] m) =>"
        "(float16[4,16,9,9] y) { v = Mul(s, s) y = BatchNormalization(x, s, b, m, v) }"
    ),
    "a leaky relu": "g (float16[64] x) => (float16[64] y) { y = LeakyRelu<alpha: float = 0.3>(x) }",
    **{
        name: f"g (float16[4,500] x) => (float16[4,500] y) {{ y = {call} }}"
        for name, call in (
            ("an exponential", "Exp(x)"),
            ("a logistic function", "Sigmoid(x)"),
            ("a hyperbolic tangent", "Tanh(x)"),
            ("an error function", "Erf(x)"),
            ("a gelu", "Gelu(x)"),
            ("a gelu by tanh", 'Gelu<approximate: string = "tanh">(x)'),
        )
    },
    "a mean of windows": (
        "g (float16[2,5,9,8] x) => (float16[2,5,5,4] y)"
        "{ y = AveragePool<kernel_shape: ints = [3, 2], strides: ints = [2, 2],"
        " pads: ints = [1, 0, 1, 0]>(x) }"
    ),
    "a mean of windows with their padding": (
        "g (float16[2,5,9] x) => (float16[2,5,9] y)"
        "{ y = AveragePool<kernel_shape: ints = [5], pads: ints = [2, 2],"
        " count_include_pad: int = 1>(x) }"
    ),
    "a mean": "g (float16[2,16,7,7] x) => (float16[2,16,1,1] y) { y = GlobalAveragePool(x) }",
}


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    return {n: rng.standard_normal(shape).astype(np.float16) for n, shape in shapes.items()}
