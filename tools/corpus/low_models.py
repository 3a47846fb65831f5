"""Small models as people hold them: in 16 bits (or 64) already, and some wrong on the device.

    python tools/corpus/low_models.py FOLDER

Weights are random; what is wrong with them was put in by hand, as it was met in public models: a
residual channel of 800 in front of a decomposed LayerNormalization (Whisper), residuals beyond
65,504 (Gemma 3, T5), squares of a relu (nanochat), masks that are added twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, LENGTH, WORDS, LAYERS, WIDE = 96, 4, 16, 128, 2, 192
DEPTH = WIDTH // HEADS
TOKENS, PAST, ROWS = 8, 4, 5
OPSET = 17
_BLOCK = 32

NUMPY: Mapping[int, Any] = {
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
}

Array = np.ndarray[Any, np.dtype[Any]]


class Net:
    """A graph that is being written, every float of it in one type."""

    def __init__(self, dtype: int, seed: int = 0, *, blocks: bool = False) -> None:
        """Begin.

        Args:
            dtype: The type, a number of TensorProto.DataType.
            seed: Of the weights.
            blocks: Whether matrix products with weights are MatMulNBits of 4 bits.
        """
        self.dtype, self.rng, self.blocks = dtype, np.random.default_rng(seed), blocks
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def hold(self, array: Array | float) -> str:
        """Add a constant; floats become the type of the net."""
        found = np.asarray(array)
        if found.dtype.kind == "f":
            with np.errstate(over="ignore"):
                found = found.astype(NUMPY[self.dtype])
        name = f"w{len(self.held)}"
        self.held.append(numpy_helper.from_array(found, name))
        return name

    def random(self, *shape: int, scale: float | None = None) -> Array:
        """Return weights: normal ones of a spread that keeps the size of what they multiply."""
        spread = shape[0] ** -0.5 if scale is None else scale
        return self.rng.normal(0, spread, shape)

    def add(self, op: str, *inputs: str, n: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; return the name of its output, or the names of its `n` outputs."""
        number = len(self.nodes)
        made = [f"{op.lower()}_{number}" + (f"_{i}" if i else "") for i in range(n)]
        node = helper.make_node(op, inputs, made, f"{op}_{number}", domain=domain, **attributes)
        self.nodes.append(node)
        return made[0] if n == 1 else made

    def product(self, x: str, weight: Array) -> str:
        """Multiply by a weight, of 4 bits if the net has those."""
        if not self.blocks:
            return self.add("MatMul", x, self.hold(weight))
        packed, scales = _four_bits(weight)
        k, n = weight.shape
        held = (self.hold(packed), self.hold(scales))
        sizes = {"K": k, "N": n, "bits": 4, "block_size": _BLOCK}
        return self.add("MatMulNBits", x, *held, domain="com.microsoft", **sizes)

    def model(self, inputs: Mapping[str, Any], outputs: Mapping[str, str]) -> onnx.ModelProto:
        """Return the model.

        Args:
            inputs: Name -> (type, shape).
            outputs: Name -> the value inside that it is.
        """
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name], f"Identity_{name}"))
        graph = helper.make_graph(
            self.nodes,
            "low",
            [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in inputs.items()],
            [helper.make_tensor_value_info(n, self.dtype, None) for n in outputs],
            self.held,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _four_bits(weight: Array) -> tuple[Array, Array]:
    """Return a weight (K, N) as MatMulNBits reads it: blocks of 32 along K, zero at 8."""
    k, n = weight.shape
    blocks = weight.T.reshape(n, k // _BLOCK, _BLOCK)
    scales = np.maximum(np.abs(blocks).max(axis=2, keepdims=True) / 7, 1e-4)
    numbers = np.clip(np.rint(blocks / scales) + 8, 0, 15).astype(np.uint8)
    return numbers[..., ::2] | (numbers[..., 1::2] << 4), scales.reshape(-1)


def layer_norm(net: Net, x: str) -> str:
    """Normalise as exporters write it out before opset 17."""
    deviation = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    square = net.add("Pow", deviation, net.hold(2.0))
    variance = net.add("Add", net.add("ReduceMean", square, axes=[-1]), net.hold(1e-5))
    normal = net.add("Div", deviation, net.add("Sqrt", variance))
    scaled = net.add("Mul", normal, net.hold(1 + net.random(WIDTH, scale=0.1)))
    return net.add("Add", scaled, net.hold(net.random(WIDTH, scale=0.1)))


def rms_norm(net: Net, x: str) -> str:
    """Divide by the root of the mean square, written out."""
    square = net.add("Pow", x, net.hold(2.0))
    mean = net.add("Add", net.add("ReduceMean", square, axes=[-1]), net.hold(1e-6))
    normal = net.add("Mul", x, net.add("Reciprocal", net.add("Sqrt", mean)))
    return net.add("Mul", normal, net.hold(1 + net.random(WIDTH, scale=0.1)))


def heads(net: Net, x: str) -> str:
    """Split the width into heads: (1, T, WIDTH) -> (1, HEADS, T, DEPTH)."""
    apart = net.add("Reshape", x, net.hold(np.array([1, -1, HEADS, DEPTH])))
    return net.add("Transpose", apart, perm=[0, 2, 1, 3])


def attention(
    net: Net, x: str, masks: tuple[str, ...] = (), cache: tuple[str, str] | None = None
) -> tuple[str, str, str]:
    """Return what attention makes of x, and the keys and values that it used."""
    q, k, v = (heads(net, net.product(x, net.random(WIDTH, WIDTH))) for _ in range(3))
    if cache is not None:
        k = net.add("Concat", cache[0], k, axis=2)
        v = net.add("Concat", cache[1], v, axis=2)
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.add("Mul", scores, net.hold(DEPTH**-0.5))
    for mask in masks:
        scores = net.add("Add", scores, mask)
    seen = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
    joined = net.add("Transpose", seen, perm=[0, 2, 1, 3])
    flat = net.add("Reshape", joined, net.hold(np.array([1, -1, WIDTH])))
    return net.product(flat, net.random(WIDTH, WIDTH)), k, v


def gelu(net: Net, x: str) -> str:
    """Return x times the normal distribution's integral, written out."""
    erf = net.add("Erf", net.add("Div", x, net.hold(2**0.5)))
    half = net.add("Mul", net.add("Add", erf, net.hold(1.0)), net.hold(0.5))
    return net.add("Mul", x, half)


def whisper_encoder(dtype: int = TensorProto.FLOAT16, *, outlier: float = 800.0) -> onnx.ModelProto:
    """An encoder whose residuals have one channel of 800: its square leaves float16."""
    net = Net(dtype)
    places = net.random(LENGTH, WIDTH, scale=1.0)
    places[:, 3] = outlier
    x = net.add("Add", "x", net.hold(places))
    for _ in range(LAYERS):
        x = net.add("Add", x, attention(net, layer_norm(net, x))[0])
        inner = gelu(net, net.product(layer_norm(net, x), net.random(WIDTH, WIDE)))
        x = net.add("Add", x, net.product(inner, net.random(WIDE, WIDTH)))
    return net.model({"x": (dtype, [1, LENGTH, WIDTH])}, {"y": layer_norm(net, x)})


def _decoder(
    net: Net, mlp: Callable[[Net, str, int], str], embedded: Array, finish: Callable[..., str]
) -> onnx.ModelProto:
    """Return a decoder with a cache: embeddings, attention, an MLP, logits."""
    x = net.add("Gather", net.hold(embedded), "input_ids")
    x = net.add("Mul", x, net.hold(WIDTH**0.5))
    inputs: dict[str, Any] = {"input_ids": (TensorProto.INT64, [1, TOKENS])}
    outputs: dict[str, str] = {}
    for layer in range(LAYERS):
        past = (f"past_key_{layer}", f"past_value_{layer}")
        inputs |= {name: (net.dtype, [1, HEADS, PAST, DEPTH]) for name in past}
        seen, keys, values = attention(net, rms_norm(net, x), cache=past)
        outputs |= {f"present_key_{layer}": keys, f"present_value_{layer}": values}
        x = net.add("Add", x, seen)
        x = net.add("Add", x, mlp(net, rms_norm(net, x), layer))
    logits = finish(net, net.product(rms_norm(net, x), net.random(WIDTH, WORDS)))
    return net.model(inputs, {"logits": logits, **outputs})


def gemma_decoder(dtype: int = TensorProto.FLOAT16, *, blocks: bool = False) -> onnx.ModelProto:
    """A decoder whose residuals grow beyond 65,504 in one channel, by 30,000 a layer."""
    net = Net(dtype, 1, blocks=blocks)

    def mlp(net: Net, x: str, layer: int) -> str:
        gate = gelu(net, net.product(x, net.random(WIDTH, WIDE)))
        inner = net.add("Mul", gate, net.product(x, net.random(WIDTH, WIDE)))
        massive = np.zeros(WIDTH)
        massive[5] = 30_000
        return net.add("Add", net.product(inner, net.random(WIDE, WIDTH)), net.hold(massive))

    embedded = net.random(WORDS, WIDTH, scale=1.0)
    embedded[:, 5] = 1_000
    return _decoder(net, mlp, embedded, lambda _, logits: logits)


def nanochat_decoder(dtype: int = TensorProto.FLOAT16, *, blocks: bool = False) -> onnx.ModelProto:
    """A decoder with squares of a relu, one of whose units reaches 300, and capped logits."""
    net = Net(dtype, 2, blocks=blocks)

    def mlp(net: Net, x: str, layer: int) -> str:
        up = net.random(WIDTH, WIDE)
        up[:, 7] *= 200
        inner = net.add("Relu", net.product(x, up))
        down = net.random(WIDE, WIDTH)
        down[7] *= 1e-3
        return net.product(net.add("Mul", inner, inner), down)

    def capped(net: Net, logits: str) -> str:
        part = net.add("Tanh", net.add("Div", logits, net.hold(15.0)))
        return net.add("Mul", part, net.hold(15.0))

    return _decoder(net, mlp, net.random(WORDS, WIDTH, scale=1.0), capped)


def twice_masked(dtype: int = TensorProto.FLOAT16) -> onnx.ModelProto:
    """An encoder that adds a mask of -3.4e38, cut to -65,504, twice: minus infinity."""
    net = Net(dtype, 3)
    lowest = float(ml_dtypes.finfo(NUMPY[dtype]).min)
    hidden = net.add("Cast", "attention_mask", to=dtype)
    hidden = net.add("Mul", net.add("Sub", net.hold(1.0), hidden), net.hold(lowest))
    mask = net.add("Unsqueeze", hidden, net.hold(np.array([1, 2])))
    x = net.add("Gather", net.hold(net.random(WORDS, WIDTH, scale=1.0)), "input_ids")
    for _ in range(LAYERS):
        x = net.add("Add", x, attention(net, layer_norm(net, x), (mask, mask))[0])
    ids = (TensorProto.INT64, [1, LENGTH])
    return net.model({"input_ids": ids, "attention_mask": ids}, {"y": layer_norm(net, x)})


def t5_encoder(dtype: int = TensorProto.FLOAT16) -> onnx.ModelProto:
    """An encoder with root mean squares of residuals of 600, as T5 has them."""
    net = Net(dtype, 4)
    x = net.add("Gather", net.hold(net.random(WORDS, WIDTH, scale=600.0)), "input_ids")
    for _ in range(LAYERS):
        x = net.add("Add", x, attention(net, rms_norm(net, x))[0])
        inner = net.add("Relu", net.product(rms_norm(net, x), net.random(WIDTH, WIDE)))
        x = net.add("Add", x, net.product(inner, net.random(WIDE, WIDTH, scale=20.0)))
    return net.model({"input_ids": (TensorProto.INT64, [1, LENGTH])}, {"y": rms_norm(net, x)})


def llama_decoder(dtype: int = TensorProto.BFLOAT16) -> onnx.ModelProto:
    """A decoder in bfloat16, as checkpoints are."""
    net = Net(dtype, 5)

    def mlp(net: Net, x: str, layer: int) -> str:
        gate = net.product(x, net.random(WIDTH, WIDE))
        gate = net.add("Mul", gate, net.add("Sigmoid", gate))
        inner = net.add("Mul", gate, net.product(x, net.random(WIDTH, WIDE)))
        return net.product(inner, net.random(WIDE, WIDTH))

    return _decoder(net, mlp, net.random(WORDS, WIDTH, scale=1.0), lambda _, logits: logits)


def regressor(dtype: int = TensorProto.DOUBLE) -> onnx.ModelProto:
    """A pipeline as sklearn's are exported: scaling, then a network, all in float64."""
    net = Net(dtype, 6)
    scaled = net.add(
        "Div", net.add("Sub", "x", net.hold(net.random(32))), net.hold(np.full(32, 2.0))
    )
    inner = net.add("Tanh", net.product(scaled, net.random(32, 64)))
    return net.model({"x": (dtype, ["N", 32])}, {"y": net.product(inner, net.random(64, 1))})


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "whisper": whisper_encoder,
    "gemma": gemma_decoder,
    "gemma_q4": lambda: gemma_decoder(blocks=True),
    "nanochat": nanochat_decoder,
    "nanochat_q4": lambda: nanochat_decoder(blocks=True),
    "twice_masked": twice_masked,
    "t5": t5_encoder,
    "llama": llama_decoder,
    "regressor": regressor,
}
"""Name -> what makes the model."""

WRONG = ("whisper", "gemma", "gemma_q4", "nanochat", "nanochat_q4", "twice_masked", "t5")
"""Those that are wrong in the type that they have."""


def feeds(name: str, seed: int = 0) -> dict[str, Array]:
    """Return a batch for a model; of masks one whole row is hidden."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in MODELS[name]().graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or ROWS for d in kind.shape.dim]
        if value.name == "attention_mask":
            found[value.name] = np.zeros(shape, np.int64)
        elif kind.elem_type == TensorProto.INT64:
            found[value.name] = rng.integers(0, WORDS, shape)
        else:
            found[value.name] = rng.normal(size=shape).astype(NUMPY[kind.elem_type])
    return found


def main(folder: str) -> None:
    """Write every model to a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        onnx.save(make(), f"{folder}/{name}.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:])
