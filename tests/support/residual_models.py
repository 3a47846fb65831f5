"""Decoders whose residual stream has one channel that grows beyond float16, as Gemma 3's and T5's.

Nothing in them is random but their weights: layers of a norm and an MLP are added to a stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

WIDTH, WIDE, GIVEN, RESULTS = 64, 128, 32, 16
NORMS = ("SimplifiedLayerNormalization", "LayerNormalization", "RMSNormalization", "written")
ACTIVATIONS = ("relu", "relu2", "silu", "swish", "gelu", "erf")
EPSILON = 1e-6
_OPSET_WITH_AXES = 18


class ResidualNet:
    """A graph that is being written."""

    def __init__(self, dtype: Any, norm: str, seed: int, opset: int = 17) -> None:
        """Begin."""
        self.rng, self.dtype, self.norm = np.random.default_rng(seed), np.dtype(dtype), norm
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def hold(self, numbers: Any) -> str:
        """Add a constant; return its name."""
        name = f"w{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(numbers).astype(self.dtype), name))
        return name

    def product(self, x: str, *shape: int) -> str:
        """Multiply by random weights."""
        return self.add("MatMul", x, self.hold(self.rng.normal(0, shape[0] ** -0.5, shape)))

    def embedding(self, x: str, words: int) -> str:
        """Return rows of random weights, times a number as Gemma has them."""
        rows = self.add("Gather", self.hold(self.rng.normal(0, 1, (words, WIDTH))), x)
        return self.add("Mul", rows, self.hold(WIDTH**0.5))

    def heavy_product(self, x: str, peak: float) -> str:
        """Multiply what a Relu gives by weights that take one channel to a peak."""
        weights = self.rng.normal(0, WIDE**-0.5, (WIDE, WIDTH))
        weights[:, 3] = peak / (0.4 * WIDE)
        return self.add("MatMul", x, self.hold(weights))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [made], f"{op}_{made}", **attributes))
        return made

    def normal(self, x: str) -> str:
        """Normalise."""
        scale = self.hold(1 + self.rng.normal(0, 0.1, WIDTH))
        if self.norm == "LayerNormalization":
            return self.add(self.norm, x, scale, self.hold(np.zeros(WIDTH)), epsilon=EPSILON)
        if self.norm != "written":
            return self.add(self.norm, x, scale, epsilon=EPSILON)
        mean = self.mean(self.add("Pow", x, self.hold(2.0)))
        root = self.add("Sqrt", self.add("Add", mean, self.hold(EPSILON)))
        return self.add("Mul", self.add("Div", x, root), scale)

    def mean(self, x: str) -> str:
        """Return the mean of each row."""
        if self.opset < _OPSET_WITH_AXES:
            return self.add("ReduceMean", x, axes=[-1])
        if all(held.name != "axes" for held in self.held):
            self.held.append(numpy_helper.from_array(np.array([-1]), "axes"))
        return self.add("ReduceMean", x, "axes")

    def mlp(self, y: str, activation: str) -> str:
        """Return what an MLP makes of a normalised value, before its last product."""
        up = self.product(y, WIDTH, WIDE)
        if activation == "silu":
            gate = self.product(y, WIDTH, WIDE)
            return self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        if activation in ("swish", "gelu", "erf"):
            return self.smooth(up, activation)
        up = self.add("Relu", up)
        return self.add("Mul", up, up) if activation == "relu2" else up

    def smooth(self, up: str, activation: str) -> str:
        """Return a SiLU of a value, or a Gelu, as one node or as exporters write it."""
        if activation == "gelu":
            return self.add("Gelu", up)
        if activation == "swish":
            return self.add("Mul", up, self.add("Sigmoid", up))
        share = self.add("Erf", self.add("Div", up, self.hold(2**0.5)))
        share = self.add("Add", share, self.hold(1.0))
        return self.add("Mul", self.add("Mul", up, share), self.hold(0.5))


def lowest_opset(norm: str, activation: str) -> int:
    """Return the lowest opset of 17 and up that has a norm and an activation."""
    return 23 if norm == "RMSNormalization" else 20 if activation == "gelu" else 17


def residual_decoder(
    layers: int = 4,
    *,
    norm: str = NORMS[0],
    activation: str = ACTIVATIONS[0],
    peak: float = 3.6e5,
    dtype: Any = np.float32,
    seed: int = 0,
    opset: int | None = None,
    words: int = 0,
    heavy: bool = False,
) -> onnx.ModelProto:
    """Return a decoder; inputs x (N, 32), outputs y (N, 16).

    Biases of equal size, or `heavy` weights behind "relu", take the largest channel to `peak`. With
    `words`, the stream begins at an embedding of so many rows, which x (N,) chooses. The opset is
    the lowest from 17 on that has the operators, unless given.
    """
    used = lowest_opset(norm, activation) if opset is None else opset
    net = ResidualNet(dtype, norm, seed, used)
    x = net.product("x", GIVEN, WIDTH) if not words else net.embedding("x", words)
    bias = np.zeros(WIDTH)
    bias[3] = peak / layers
    for _ in range(layers):
        inner = net.mlp(net.normal(x), activation)
        if heavy:
            x = net.add("Add", x, net.heavy_product(inner, peak / layers))
        else:
            inner = net.product(inner, WIDE, WIDTH)
            x = net.add("Add", x, net.add("Add", inner, net.hold(bias)))
    y = net.product(net.normal(x), WIDTH, RESULTS)
    net.nodes[-1].output[0] = "y" if y else ""
    number = helper.np_dtype_to_tensor_dtype(net.dtype)
    ends = [
        helper.make_tensor_value_info(name, number, ["N", width])
        for name, width in (("x", GIVEN), ("y", RESULTS))
    ]
    if words:
        ends[0] = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, ["N"])
    graph = helper.make_graph(net.nodes, "decoder", [ends[0]], [ends[1]], net.held)
    opsets = [helper.make_opsetid("", used)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def residual_feeds(dtype: Any = np.float32) -> dict[str, Any]:
    """Return a batch."""
    return {"x": np.random.default_rng(1).normal(size=(4, GIVEN)).astype(dtype)}


def residual_blocks(count: int, layers: int = 4) -> onnx.ModelProto:
    """Return decoders one behind the other, each with a stream of its own that leaves float16.

    Inputs are x (N, 32), outputs y (N, 32).
    """
    net, y = ResidualNet(np.float32, NORMS[0], 0), "x"
    bias = np.zeros(WIDTH)
    bias[3] = 1e5
    for _ in range(count):
        x = net.product(y, GIVEN, WIDTH)
        for _ in range(layers):
            inner = net.product(net.mlp(net.normal(x), ACTIVATIONS[0]), WIDE, WIDTH)
            x = net.add("Add", x, net.add("Add", inner, net.hold(bias)))
        y = net.product(net.normal(x), WIDTH, GIVEN)
    net.nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, 1, ["N", GIVEN]) for name in "xy"]
    graph = helper.make_graph(net.nodes, "decoders", [ends[0]], [ends[1]], net.held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
