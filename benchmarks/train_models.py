"""Networks to train, for tests and the benchmark: forward models in ONNX with random weights.

Each function returns a model whose outputs are "logits" and "loss"; its inputs are "x" and the
labels "t". The same networks in PyTorch, with the same names of weights, are in train_torch.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
OPSET = 18
IR_VERSION = 10


class Net:
    """A graph under construction: values are names."""

    def __init__(self, seed: int = 0) -> None:
        """Begin an empty graph; weights are drawn from `seed`."""
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def op(self, op: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> str:
        """Add a node; return its first output."""
        name = name or f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=name, **attributes))
        return name

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Add a weight; by default normal with the deviation sqrt(2 / fan in)."""
        fan_in = int(np.prod(shape[1:])) or 1
        deviation = np.sqrt(2 / fan_in) if scale is None else scale
        self.weights[name] = (self.rng.normal(size=shape) * deviation).astype(np.float32)
        return name

    def full(self, name: str, value: float, *shape: int) -> str:
        """Add a weight filled with one value."""
        self.weights[name] = np.full(shape, value, np.float32)
        return name

    def constant(self, name: str, value: Any) -> str:
        """Add a constant: a number as a node, so that it is no weight; others as initializers."""
        array = np.asarray(value)
        if array.ndim:
            self.weights[name] = array
        else:
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return name

    def input(self, name: str, element: int, *shape: int | str) -> str:
        """Add an input."""
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """Add a layer of a multilayer perceptron: Gemm, weights (outputs, inputs)."""
        weight = self.weight(f"{name}.weight", outputs, inputs)
        return self.op("Gemm", x, weight, self.full(f"{name}.bias", 0, outputs), transB=1)

    def conv(
        self, x: str, name: str, inputs: int, outputs: int, size: int = 3, step: int = 1
    ) -> str:
        """Add a convolution without bias and its BatchNormalization."""
        weight = self.weight(f"{name}.weight", outputs, inputs, size, size)
        pad = [size // 2] * 4
        y = self.op("Conv", x, weight, kernel_shape=[size] * 2, pads=pad, strides=[step] * 2)
        parts = [("scale", 1), ("bias", 0), ("mean", 0), ("var", 1)]
        norm = [self.full(f"{name}.{part}", value, outputs) for part, value in parts]
        return self.op("BatchNormalization", y, *norm, momentum=0.9)

    def norm(self, x: str, name: str, size: int) -> str:
        """Add a LayerNormalization over the last axis."""
        scale, bias = self.full(f"{name}.scale", 1, size), self.full(f"{name}.bias", 0, size)
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """Add a layer of a transformer: MatMul and Add, weights (inputs, outputs)."""
        weight = self.weight(f"{name}.weight", inputs, outputs, scale=0.02)
        return self.op("Add", self.op("MatMul", x, weight), self.full(f"{name}.bias", 0, outputs))

    def loss(self, logits: str, labels: str, classes: int) -> None:
        """Add the loss and make it and the logits the outputs."""
        self.op("SoftmaxCrossEntropyLoss", logits, labels, name="loss")
        self.outputs.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
        self.outputs.append(
            helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["M", classes])
        )

    def model(self, name: str) -> onnx.ModelProto:
        """Return the checked model."""
        initializers = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model


def mlp(sizes: Sequence[int] = (784, 1024, 10), seed: int = 0) -> onnx.ModelProto:
    """Return a multilayer perceptron: x (N, sizes[0]), t (N)."""
    net = Net(seed)
    x = net.input("x", TensorProto.FLOAT, "N", sizes[0])
    t = net.input("t", TensorProto.INT64, "N")
    for i in range(len(sizes) - 2):
        x = net.op("Relu", net.linear(x, f"layer{i}", sizes[i], sizes[i + 1]))
    x = net.linear(x, "last", sizes[-2], sizes[-1])
    net.loss(net.op("Identity", x, name="logits"), t, sizes[-1])
    return net.model("mlp")


def digits_cnn(seed: int = 0, dropout: float = 0.25) -> onnx.ModelProto:
    """Return a network for 8 x 8 images: x (N, 1, 8, 8), t (N)."""
    net = Net(seed)
    x = net.input("x", TensorProto.FLOAT, "N", 1, 8, 8)
    t = net.input("t", TensorProto.INT64, "N")
    ratio = net.constant("ratio", np.float32(dropout))
    x = net.op("Relu", net.conv(x, "conv1", 1, 32))
    x = net.op("Relu", net.conv(x, "conv2", 32, 64))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", net.op("Dropout", x, ratio), axis=1)
    x = net.op("Relu", net.linear(x, "hidden", 64 * 16, 128))
    x = net.linear(net.op("Dropout", x, ratio), "last", 128, 10)
    net.loss(net.op("Identity", x, name="logits"), t, 10)
    return net.model("digits_cnn")


def resnet(seed: int = 0, widths: Sequence[int] = (16, 32, 64)) -> onnx.ModelProto:
    """Return a small residual network for 32 x 32 images: x (N, 3, 32, 32), t (N)."""
    net = Net(seed)
    x = net.input("x", TensorProto.FLOAT, "N", 3, 32, 32)
    t = net.input("t", TensorProto.INT64, "N")
    x = net.op("Relu", net.conv(x, "stem", 3, widths[0]))
    before = widths[0]
    for i, width in enumerate(widths):
        step = 1 if i == 0 else 2
        y = net.op("Relu", net.conv(x, f"block{i}.conv1", before, width, step=step))
        y = net.conv(y, f"block{i}.conv2", width, width)
        short = x if i == 0 else net.conv(x, f"block{i}.short", before, width, size=1, step=step)
        x, before = net.op("Relu", net.op("Add", y, short)), width
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    net.loss(net.op("Identity", net.linear(x, "last", before, 10), name="logits"), t, 10)
    return net.model("resnet")


def _heads(net: Net, x: str, shape: str, perm: Sequence[int]) -> str:
    return net.op("Transpose", net.op("Reshape", x, shape), perm=list(perm))


def _attention(net: Net, x: str, name: str, size: int, heads: int, mask: str, causal: bool) -> str:
    """Add multi-head attention to x (N, T, size).

    If `causal`, `mask` (bool) says which scores stay; else `mask` (float32) is added to them.
    """
    wide = net.op("Concat", net.op("Slice", net.op("Shape", x), "zero", "two"), "heads", axis=0)
    q, k, v = (net.dense(x, f"{name}.{part}", size, size) for part in "qkv")
    q, v = _heads(net, q, wide, (0, 2, 1, 3)), _heads(net, v, wide, (0, 2, 1, 3))
    scores = net.op("MatMul", q, _heads(net, k, wide, (0, 2, 3, 1)))
    scale = net.constant(f"{name}.scale", np.float32(np.sqrt(size // heads)))
    scores = net.op("Div", scores, scale)
    scores = net.op("Where", mask, scores, "lowest") if causal else net.op("Add", scores, mask)
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    y = net.op("Reshape", y, net.op("Shape", x))
    return net.dense(y, f"{name}.out", size, size)


def _gelu(net: Net, x: str) -> str:
    """Add x * (1 + erf(x / sqrt(2))) / 2 as exporters write it."""
    y = net.op("Add", net.op("Erf", net.op("Div", x, "root_two")), "one")
    return net.op("Mul", net.op("Mul", x, y), "half")


def _shared(net: Net, heads: int, size: int) -> None:
    net.constant("heads", np.array([heads, size // heads], np.int64))
    net.constant("zero", np.array([0], np.int64))
    net.constant("two", np.array([2], np.int64))
    net.constant("root_two", np.float32(np.sqrt(2)))
    net.constant("one", np.float32(1))
    net.constant("half", np.float32(0.5))
    net.constant("lowest", np.float32(-1e9))


def transformer(
    vocabulary: int,
    length: int = 64,
    size: int = 128,
    heads: int = 4,
    layers: int = 2,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a causal language model with tied weights: x (N, length), t (N, length)."""
    net = Net(seed)
    x = net.input("x", TensorProto.INT64, "N", length)
    t = net.input("t", TensorProto.INT64, "N", length)
    _shared(net, heads, size)
    embedding = net.weight("embedding", vocabulary, size, scale=0.02)
    mask = net.constant("mask", np.tri(length, dtype=np.bool_))
    position = net.weight("position", length, size, scale=0.02)
    y = net.op("Add", net.op("Gather", embedding, x), position)
    for i in range(layers):
        a = net.norm(y, f"layer{i}.norm1", size)
        y = net.op("Add", y, _attention(net, a, f"layer{i}.attention", size, heads, mask, True))
        a = net.dense(net.norm(y, f"layer{i}.norm2", size), f"layer{i}.up", size, 4 * size)
        y = net.op("Add", y, net.dense(_gelu(net, a), f"layer{i}.down", 4 * size, size))
    y = net.norm(y, "norm", size)
    logits = net.op("MatMul", y, net.op("Transpose", embedding, perm=[1, 0]))
    flat = net.constant("flat", np.array([-1, vocabulary], np.int64))
    rows = net.constant("rows", np.array([-1], np.int64))
    logits = net.op("Reshape", logits, flat, name="logits")
    net.loss(logits, net.op("Reshape", t, rows), vocabulary)
    return net.model("transformer")


def bert_encoder(
    net: Net,
    layers: int = 12,
    size: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    length: int = 128,
) -> str:
    """Add an encoder of bert-base's shape; return its last value (N, length, size).

    Its inputs are x (N, length) and attention (N, length).
    """
    x = net.input("x", TensorProto.INT64, "N", length)
    attention = net.input("attention", TensorProto.FLOAT, "N", length)
    _shared(net, heads, size)
    axes = net.constant("axes", np.array([1, 2], np.int64))
    mask = net.op("Sub", "one", net.op("Unsqueeze", attention, axes))
    mask = net.op("Mul", mask, "lowest")
    y = net.op("Gather", net.weight("word", vocabulary, size, scale=0.02), x)
    position = net.weight("position", 512, size, scale=0.02)
    ends = net.constant("length", np.array([length], np.int64))
    place = net.op("Slice", position, "zero", ends, "zero")
    y = net.norm(net.op("Add", y, place), "norm", size)
    for i in range(layers):
        a = _attention(net, y, f"layer{i}.attention", size, heads, mask, False)
        y = net.norm(net.op("Add", y, a), f"layer{i}.norm1", size)
        a = _gelu(net, net.dense(y, f"layer{i}.up", size, 4 * size))
        a = net.dense(a, f"layer{i}.down", 4 * size, size)
        y = net.norm(net.op("Add", y, a), f"layer{i}.norm2", size)
    return y


def bert_base(
    layers: int = 12,
    size: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    length: int = 128,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a classifier of bert-base's shape: x (N, length), attention (N, length), t (N)."""
    net = Net(seed)
    y = bert_encoder(net, layers, size, heads, vocabulary, length)
    t = net.input("t", TensorProto.INT64, "N")
    first = net.op("Gather", y, net.constant("first", np.array(0, np.int64)), axis=1)
    pooled = net.op("Tanh", net.linear(first, "pooler", size, size))
    net.loss(net.op("Identity", net.linear(pooled, "last", size, 2), name="logits"), t, 2)
    return net.model("bert_base")


def text() -> tuple[Array, list[str]]:
    """Return the characters of pydoc_data/topics.py as numbers, and the vocabulary."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    assert spec is not None and spec.origin is not None, "Python ships with its documentation"  # noqa: PT018
    content = Path(spec.origin).read_text(encoding="utf-8")[:400_000]
    vocabulary = sorted(set(content))
    number = {c: i for i, c in enumerate(vocabulary)}
    return np.array([number[c] for c in content], np.int64), vocabulary


def text_batch(numbers: Array, step: int, batch: int, length: int) -> dict[str, Array]:
    """Return the characters of a batch and those that follow each; a function of `step` alone."""
    rng = np.random.default_rng([7, step])
    starts = rng.integers(0, len(numbers) - length - 1, batch)
    rows = starts[:, None] + np.arange(length)
    return {"x": numbers[rows], "t": numbers[rows + 1]}
