"""The demo's model: a small image classifier with what real models have in them.

A residual convolution stem with BatchNormalization, one transformer block with a masked attention
and a LayerNormalization spelled out as exporters spell it (its sum of squares must stay float32),
and a softmax classifier. The weights are drawn from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 32, 32)
"""Shape of the input: (N, C, H, W)."""

CHANNELS, TOKENS, CLASSES = 64, 64, 10
SEED = 0
OPSET = 17
IR_VERSION = 8


class _Builder:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name: str, values: object, dtype: object = np.float32) -> str:
        array = np.asarray(values).astype(dtype)  # pyright: ignore[reportArgumentType,reportCallIssue]
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, name: str, *shape: int) -> str:
        fan_in = int(math.prod(shape[1:])) if len(shape) > 2 else next(iter(shape))
        return self.weight(name, self.rng.standard_normal(shape) * np.sqrt(2 / fan_in))

    def conv(self, x: str, name: str, inputs: int, stride: int = 1) -> str:
        """Convolve with a 3 x 3 kernel, normalize the batch, rectify."""
        weight = self.random(f"{name}.weight", CHANNELS, inputs, 3, 3)
        strides = [stride, stride]
        x = self.op("Conv", [x, weight], f"{name}.conv", pads=[1, 1, 1, 1], strides=strides)
        uniform = self.rng.uniform
        statistics = [
            self.weight(f"{name}.{part}", uniform(low, high, CHANNELS))
            for part, low, high in (
                ("scale", 0.8, 1.2),
                ("bias", -0.1, 0.1),
                ("mean", -0.1, 0.1),
                ("variance", 0.5, 1.5),
            )
        ]
        x = self.op("BatchNormalization", [x, *statistics], f"{name}.norm")
        return self.op("Relu", [x], f"{name}.relu")

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        weight = self.random(f"{name}.weight", inputs, outputs)
        bias = self.weight(f"{name}.bias", np.zeros(outputs))
        return self.op("Add", [self.op("MatMul", [x, weight], f"{name}.matmul"), bias], name)

    def layer_norm(self, x: str, name: str) -> str:
        """Normalize the last axis, spelled out as exporters before opset 17 do."""
        mean = self.op("ReduceMean", [x], f"{name}.mean", axes=[-1])
        centered = self.op("Sub", [x, mean], f"{name}.centered")
        square = self.op("Pow", [centered, self.weight(f"{name}.two", 2)], f"{name}.square")
        variance = self.op("ReduceMean", [square], f"{name}.variance", axes=[-1])
        safe = self.op("Add", [variance, self.weight(f"{name}.epsilon", 1e-5)], f"{name}.safe")
        deviation = self.op("Sqrt", [safe], f"{name}.deviation")
        return self.op("Div", [centered, deviation], f"{name}.normalized")

    def attention(self, x: str, name: str) -> str:
        """Attend with one head and a causal mask of the lowest float32 number."""
        q, k, v = (self.dense(x, f"{name}.{part}", CHANNELS, CHANNELS) for part in "qkv")
        k = self.op("Transpose", [k], f"{name}.k_t", perm=[0, 2, 1])
        scores = self.op("MatMul", [q, k], f"{name}.scores")
        scale = self.weight(f"{name}.scale", CHANNELS**-0.5)
        scores = self.op("Mul", [scores, scale], f"{name}.scaled")
        future = np.triu(np.ones((TOKENS, TOKENS)), 1) * float(np.finfo(np.float32).min)
        masked = self.op("Add", [scores, self.weight(f"{name}.mask", future)], f"{name}.masked")
        weights = self.op("Softmax", [masked], f"{name}.softmax", axis=-1)
        return self.dense(
            self.op("MatMul", [weights, v], f"{name}.mixed"), f"{name}.out", CHANNELS, CHANNELS
        )


def demo_model() -> onnx.ModelProto:
    """Return the model: float32 `image` of shape (1, 3, 32, 32) -> `scores` of shape (1, 10)."""
    b = _Builder()
    x = b.conv("image", "stem", IMAGE[1], stride=2)
    residual = b.conv(x, "block1", CHANNELS)
    x = b.op("Add", [x, residual], "block1.sum")
    x = b.conv(x, "block2", CHANNELS, stride=2)
    x = b.op("Reshape", [x, b.weight("shape", [1, CHANNELS, TOKENS], np.int64)], "flat")
    x = b.op("Transpose", [x], "tokens", perm=[0, 2, 1])
    attended = b.attention(b.layer_norm(x, "norm1"), "attention")
    x = b.op("Add", [x, attended], "attention.sum")
    hidden = b.dense(b.layer_norm(x, "norm2"), "mlp.up", CHANNELS, 4 * CHANNELS)
    hidden = b.op("Relu", [hidden], "mlp.relu")
    x = b.op("Add", [x, b.dense(hidden, "mlp.down", 4 * CHANNELS, CHANNELS)], "mlp.sum")
    x = b.op("ReduceMean", [x], "pool", axes=[1], keepdims=0)
    b.op("Softmax", [b.dense(x, "classifier", CHANNELS, CLASSES)], "scores", axis=-1)
    graph = helper.make_graph(
        b.nodes,
        "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, CLASSES))],
        b.weights,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="amp-rewrite demo"
    )
