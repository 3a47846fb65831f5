"""The graph of a Llama decoder in the form that exporters write, without its weights.

Grouped-query attention, rotary positions, SwiGLU and RMSNorm stand there as the operators of the
standard that they are made of: J. Ainslie et al., "GQA", 2023, https://arxiv.org/abs/2305.13245;
J. Su et al., "RoFormer", 2021, https://arxiv.org/abs/2104.09864; N. Shazeer, "GLU Variants Improve
Transformer", 2020, https://arxiv.org/abs/2002.05202; B. Zhang, R. Sennrich, "Root Mean Square Layer
Normalization", 2019, https://arxiv.org/abs/1910.07467.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper
from train_models import Net

THETA = 500_000.0
"""Base of the rotary frequencies."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder; by default those of the largest Llama 3."""

    layers: int = 80
    hidden: int = 8192
    heads: int = 64
    groups: int = 8
    feed_forward: int = 28_672
    vocabulary: int = 128_256

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.hidden // self.heads


def llama80(sizes: Sizes | None = None) -> onnx.ModelProto:
    """Return the graph; its weights are inputs, which every tool can load.

    Inputs are the tokens and their positions (N, T) and what the mask adds to scores (N, 1, T, T).
    """
    sizes = sizes or Sizes()
    net = Net()
    tokens = net.input("input_ids", TensorProto.INT64, "N", "T")
    positions = net.input("position_ids", TensorProto.INT64, "N", "T")
    net.input("mask", TensorProto.FLOAT, "N", 1, "T", "T")
    _constants(net, sizes)
    _rotary(net, positions, sizes)
    x = net.op("Gather", _weight(net, "embedding", sizes.vocabulary, sizes.hidden), tokens)
    for i in range(sizes.layers):
        a = _rms_norm(net, x, f"layer{i}.norm1", sizes.hidden)
        x = net.op("Add", x, _attention(net, a, f"layer{i}.attention", sizes))
        a = _rms_norm(net, x, f"layer{i}.norm2", sizes.hidden)
        x = net.op("Add", x, _swiglu(net, a, f"layer{i}.mlp", sizes))
    x = _rms_norm(net, x, "norm", sizes.hidden)
    logits = net.op(
        "MatMul", x, _weight(net, "head", sizes.hidden, sizes.vocabulary), name="logits"
    )
    shape = ("N", "T", sizes.vocabulary)
    net.outputs.append(helper.make_tensor_value_info(logits, TensorProto.FLOAT, shape))
    return net.model("llama80")


def _weight(net: Net, name: str, *shape: int) -> str:
    return net.input(f"{name}.weight", TensorProto.FLOAT, *shape)


def _constants(net: Net, sizes: Sizes) -> None:
    """Add what all layers use: numbers, axes and the shapes of heads."""
    net.constant("epsilon", np.float32(1e-5))
    net.constant("two", np.float32(2))
    net.constant("one", np.float32(1))
    net.constant("scale", np.float32(sizes.head**-0.5))
    for i in range(3):
        net.constant(f"axis{i}", np.array([i], np.int64))
    net.constant("last_axis", np.array([-1], np.int64))
    net.constant("half", np.array([sizes.head // 2], np.int64))
    net.constant("end", np.array([np.iinfo(np.int64).max], np.int64))
    repeats = sizes.heads // sizes.groups
    net.constant("queries", np.array([0, 0, sizes.heads, sizes.head], np.int64))
    net.constant("keys", np.array([0, 0, sizes.groups, sizes.head], np.int64))
    net.constant("repeats", np.array([1, 1, repeats, 1, 1], np.int64))
    net.constant("repeated", np.array([0, sizes.heads, -1, sizes.head], np.int64))
    net.constant("joined", np.array([0, 0, sizes.hidden], np.int64))


def _rotary(net: Net, positions: str, sizes: Sizes) -> None:
    """Add the values "cos" and "sin" (N, 1, T, head) of all positions."""
    powers = np.arange(0, sizes.head, 2, dtype=np.float32) / sizes.head
    frequencies = net.constant("frequencies", (THETA**-powers)[None].astype(np.float32))
    column = net.op("Cast", net.op("Unsqueeze", positions, "last_axis"), to=TensorProto.FLOAT)
    angles = net.op("MatMul", column, frequencies)
    angles = net.op("Concat", angles, angles, axis=-1)
    for name, op in (("cos", "Cos"), ("sin", "Sin")):
        net.op("Unsqueeze", net.op(op, angles), "axis1", name=name)


def _rms_norm(net: Net, x: str, name: str, size: int) -> str:
    """Add x / sqrt(mean(x^2) + epsilon) times a weight."""
    mean = net.op("ReduceMean", net.op("Pow", x, "two"), "last_axis", keepdims=1)
    root = net.op("Sqrt", net.op("Add", mean, "epsilon"))
    normal = net.op("Mul", x, net.op("Div", "one", root))
    return net.op("Mul", normal, _weight(net, name, size))


def _rotated(net: Net, x: str) -> str:
    """Add x cos + rotate(x) sin, where rotate maps the halves (a, b) to (-b, a)."""
    first = net.op("Slice", x, "axis0", "half", "last_axis")
    second = net.op("Slice", x, "half", "end", "last_axis")
    turned = net.op("Concat", net.op("Neg", second), first, axis=-1)
    return net.op("Add", net.op("Mul", x, "cos"), net.op("Mul", turned, "sin"))


def _heads(net: Net, x: str, name: str, sizes: Sizes, *, keys: bool) -> str:
    """Add a projection of x (N, T, hidden) to heads: (N, heads or groups, T, head)."""
    width = (sizes.groups if keys else sizes.heads) * sizes.head
    y = net.op("MatMul", x, _weight(net, name, sizes.hidden, width))
    y = net.op("Reshape", y, "keys" if keys else "queries")
    return net.op("Transpose", y, perm=[0, 2, 1, 3])


def _repeated(net: Net, x: str) -> str:
    """Add a copy of keys or values for every head of their group."""
    wide = net.op("Expand", net.op("Unsqueeze", x, "axis2"), "repeats")
    return net.op("Reshape", wide, "repeated")


def _attention(net: Net, x: str, name: str, sizes: Sizes) -> str:
    q = _rotated(net, _heads(net, x, f"{name}.q", sizes, keys=False))
    k = _repeated(net, _rotated(net, _heads(net, x, f"{name}.k", sizes, keys=True)))
    v = _repeated(net, _heads(net, x, f"{name}.v", sizes, keys=True))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Add", net.op("Mul", scores, "scale"), "mask")
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), "joined")
    return net.op("MatMul", y, _weight(net, f"{name}.out", sizes.hidden, sizes.hidden))


def _swiglu(net: Net, x: str, name: str, sizes: Sizes) -> str:
    """Add down(silu(gate(x)) * up(x)), silu(z) = z sigmoid(z)."""
    up, gate = (
        net.op("MatMul", x, _weight(net, f"{name}.{part}", sizes.hidden, sizes.feed_forward))
        for part in ("up", "gate")
    )
    y = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), up)
    return net.op("MatMul", y, _weight(net, f"{name}.down", sizes.feed_forward, sizes.hidden))
