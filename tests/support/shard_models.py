"""Models, data and optimizers of the programs that run on several shards."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import train_models

import amp_rewrite as amp

LINEAR = """
<ir_version: 10, opset_import: ["" : 18]>
linear (float[N, 3] x, float[N, 1] t) => (float loss) <float[3, 1] w = {1, 2, 3}>
{
    y = MatMul (x, w)
    d = Sub (y, t)
    s = Mul (d, d)
    loss = ReduceMean <keepdims = 0> (s)
}
"""

TWO_LAYERS = """
<ir_version: 10, opset_import: ["" : 18]>
two (float[N, 3] x, float[N, 1] t) => (float loss)
<float[3, 1] w = {1, 2, 3}, float[3, 3] v = {1, 2, 3, 4, 5, 6, 7, 8, 10}>
{
    h = MatMul (x, v)
    y = MatMul (h, w)
    d = Sub (y, t)
    s = Mul (d, d)
    loss = ReduceMean <keepdims = 0> (s)
}
"""

TABLE = """
<ir_version: 10, opset_import: ["" : 18]>
table (int64[N] i, float[N, 2] t) => (float loss)
<float[6, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[2] unused = {1, 1}>
{
    y = Gather (w, i)
    d = Sub (y, t)
    s = Mul (d, d)
    loss = ReduceMean <keepdims = 0> (s)
    other = Add (unused, unused)
}
"""


def loaded(text):
    return amp.load(onnx.parser.parse_model(text) if isinstance(text, str) else text)


def plain_cnn():
    """Return the network for digits without BatchNormalization and Dropout."""
    net = train_models.Net(0)
    x = net.input("x", onnx.TensorProto.FLOAT, "N", 1, 8, 8)
    t = net.input("t", onnx.TensorProto.INT64, "N")
    for i, (a, b) in enumerate([(1, 16), (16, 32)]):
        pad = [1] * 4
        w = net.weight(f"conv{i}.weight", b, a, 3, 3)
        x = net.op("Relu", net.op("Conv", x, w, kernel_shape=[3, 3], pads=pad))
    x = net.op("Flatten", net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), axis=1)
    x = net.op("Relu", net.linear(x, "hidden", 32 * 16, 64))
    x = net.linear(x, "last", 64, 10)
    net.loss(net.op("Identity", x, name="logits"), t, 10)
    return net.model("plain_cnn")


def normalised_cnn():
    """Return the network for digits with BatchNormalization and without Dropout."""
    return train_models.digits_cnn(dropout=0.0)


def dropping_cnn():
    """Return the network for digits with BatchNormalization and Dropout."""
    return train_models.digits_cnn()


def own_batch(shards, rows=2):
    """Return rows that differ between shards."""
    rng = np.random.default_rng(shards.rank)
    draw = rng.normal(size=(rows, 4)).astype(np.float32)
    return {"x": draw[:, :3], "t": draw[:, 3:]}


def micro_batch(shards, number, rows=2):
    """Return rows that differ between shards and from batch to batch."""
    rng = np.random.default_rng((shards.rank, number))
    draw = rng.normal(size=(rows, 4)).astype(np.float32)
    return {"x": draw[:, :3], "t": draw[:, 3:]}


def table_batch(rank):
    """Return rows 0 and 1 on shard 0, 1 and 3 on shard 1, 2 and 5 on shard 2, ..."""
    i = np.array([[0, 1], [1, 3], [2, 5], [3, 3]][rank], np.int64)
    return {"i": i, "t": np.full((2, 2), rank, np.float32)}


def momentum():
    # At larger rates a rounding error at a kink of Relu or MaxPool grows a thousandfold.
    return amp.optimizers.Momentum(0.01, 0.9)


def slow_momentum():
    return amp.optimizers.Momentum(0.005, 0.9)


def cross(optimizer, **options):
    return amp.CrossShardOptimizer(optimizer, **options)


def scaled(optimizer):
    return amp.LossScaleOptimizer(optimizer, amp.DynamicLossScale(2.0**10))
