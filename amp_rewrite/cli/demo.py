"""`amp-rewrite demo`: a small model, end to end, in seconds."""

from __future__ import annotations

import math
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.cli import common
from amp_rewrite.cli.command_table import command
from amp_rewrite.cli.parameters import option
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.errors import RuntimeMissingError
from amp_rewrite.rewriting.plan.options import RewriteOptions, option_words

EXPLAINED = ("norm1.normalized", "attention.masked")
"""The nodes whose reasons the demo shows: one that stays float32 and one that does not."""

IMAGE = (1, 3, 32, 32)
"""Shape of the input: (N, C, H, W)."""

_CHANNELS, _TOKENS, _CLASSES = 64, 64, 10


@with_rewrite_options
def demo(
    folder: Path | None = option(
        None, "Folder for the models and the data. Default: a new temporary folder."
    ),
    *,
    options: RewriteOptions,
) -> None:
    """Build a small image classifier, convert it, and compare it with float32."""
    _ = options.low  # not float32
    used = folder or Path(tempfile.mkdtemp(prefix="amp-rewrite-demo-"))
    common.make_folder(used)
    try:
        _run_commands(used, options)
    except BaseException:  # Ctrl-C too: no line named the temporary folder
        if folder is None:
            shutil.rmtree(used, ignore_errors=True)
        raise


def _run_commands(folder: Path, options: RewriteOptions) -> None:
    """Make a model and run the commands of the demo on it."""
    out = common.console()
    model, data = str(folder / "demo.onnx"), str(folder / "demo.npz")
    converted = str(folder / f"demo.{options.precision}.onnx")
    chosen = [word for words in option_words(options) for word in words]
    onnx.save(demo_model(), model)
    out.print(f"made {model}: a small image classifier in float32")
    target = ["--target", options.target] if options.target else []
    try:
        for name, *words in (
            ["convert", model, "-o", converted, *chosen],
            ["explain", model, *EXPLAINED, *chosen],
            ["inputs", model, "-o", data],
            ["verify", model, converted, "--data", data, "--stress", *target],
        ):
            out.print()
            out.print(f"$ {shlex.join(['amp-rewrite', name, *words])}")
            command(name).main(words, standalone_mode=False)
    except RuntimeMissingError as error:
        out.print(f"skipped: {error}")
    out.print()
    out.print(f"The models and the data are in {folder.resolve()}")


class _Builder:
    """Collects nodes and weights; every method returns the name of what it made."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
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
        weight = self.random(f"{name}.weight", _CHANNELS, inputs, 3, 3)
        strides = [stride, stride]
        x = self.op("Conv", [x, weight], f"{name}.conv", pads=[1, 1, 1, 1], strides=strides)
        ends = {"scale": (0.8, 1.2), "bias": (-0.1, 0.1), "mean": (-0.1, 0.1)}
        statistics = [
            self.weight(f"{name}.{part}", self.rng.uniform(low, high, _CHANNELS))
            for part, (low, high) in {**ends, "variance": (0.5, 1.5)}.items()
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
        q, k, v = (self.dense(x, f"{name}.{part}", _CHANNELS, _CHANNELS) for part in "qkv")
        k = self.op("Transpose", [k], f"{name}.k_t", perm=[0, 2, 1])
        scores = self.op("MatMul", [q, k], f"{name}.scores")
        scale = self.weight(f"{name}.scale", _CHANNELS**-0.5)
        scores = self.op("Mul", [scores, scale], f"{name}.scaled")
        future = np.triu(np.ones((_TOKENS, _TOKENS)), 1) * float(np.finfo(np.float32).min)
        masked = self.op("Add", [scores, self.weight(f"{name}.mask", future)], f"{name}.masked")
        weights = self.op("Softmax", [masked], f"{name}.softmax", axis=-1)
        mixed = self.op("MatMul", [weights, v], f"{name}.mixed")
        return self.dense(mixed, f"{name}.out", _CHANNELS, _CHANNELS)


def demo_model() -> onnx.ModelProto:
    """Return the model: float32 `image` of shape (1, 3, 32, 32) -> `scores` of shape (1, 10)."""
    b = _Builder()
    x = b.conv("image", "stem", IMAGE[1], stride=2)
    residual = b.conv(x, "block1", _CHANNELS)
    x = b.op("Add", [x, residual], "block1.sum")
    x = b.conv(x, "block2", _CHANNELS, stride=2)
    x = b.op("Reshape", [x, b.weight("shape", [1, _CHANNELS, _TOKENS], np.int64)], "flat")
    x = b.op("Transpose", [x], "tokens", perm=[0, 2, 1])
    attended = b.attention(b.layer_norm(x, "norm1"), "attention")
    x = b.op("Add", [x, attended], "attention.sum")
    hidden = b.dense(b.layer_norm(x, "norm2"), "mlp.up", _CHANNELS, 4 * _CHANNELS)
    hidden = b.op("Relu", [hidden], "mlp.relu")
    x = b.op("Add", [x, b.dense(hidden, "mlp.down", 4 * _CHANNELS, _CHANNELS)], "mlp.sum")
    x = b.op("ReduceMean", [x], "pool", axes=[1], keepdims=0)
    b.op("Softmax", [b.dense(x, "classifier", _CHANNELS, _CLASSES)], "scores", axis=-1)
    graph = helper.make_graph(
        b.nodes,
        "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, _CLASSES))],
        b.weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=8, producer_name="amp-rewrite demo"
    )
