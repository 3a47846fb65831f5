"""What is measured of operators: families, and calls of each by size."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
import onnx.helper
import onnx.parser

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.targets import OPENVINO

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A model whose floats are all of one type, with the input x and the output y.

    Attributes:
        body: Its nodes as ONNX text.
        inputs: Input -> shape.
        made: The shape of y.
        weights: Initializer -> shape.
        macs: Multiply-accumulates.
        fixed: Initializers as ONNX text, of other types.
    """

    body: str
    inputs: dict[str, Shape]
    made: Shape
    weights: dict[str, Shape] = field(default_factory=dict[str, Shape])
    macs: int = 0
    fixed: str = ""

    @property
    def elements(self) -> int:
        """What it reads and writes, weights included."""
        return sum(map(prod, (*self.inputs.values(), *self.weights.values(), self.made)))


# operators: names of patterns, not of operators
WITH_PRODUCTS = {OPENVINO: ("Attention", "BiasGelu", "Gelu", "SiLU")}
"""Patterns of which an engine makes one call, or a part of the product in front, in either type."""

ONE_TYPE = {OPENVINO: ("RotaryEmbedding", "ChannelsLast")}
"""Patterns of which an engine makes one call if no cast stands among their nodes."""

# operators: those that take about as long for their size, which no trait says
FAMILIES: dict[str, tuple[str, ...]] = {
    "product": ("MatMul", "Gemm", "com.microsoft::FusedMatMul"),
    "attention": ("com.microsoft::Attention",),
    "convolution": ("Conv", "ConvTranspose"),
    "elementwise": (
        *("Abs", "Add", "Ceil", "Clip", "Div", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu"),
        *("Max", "Mean", "Min", "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Round", "Sqrt"),
        *("Sub", "Sum", "Where", "Pow"),
    ),
    "transcendental": (
        *("Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Selu", "Sigmoid", "Softplus", "Softsign"),
        *("Swish", "Tanh", "com.microsoft::BiasGelu", "com.microsoft::FastGelu"),
        "com.microsoft::Gelu",
    ),
    "softmax": ("Softmax", "LogSoftmax"),
    "normalization": (
        *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
        *("RMSNormalization", "SimplifiedLayerNormalization"),
        "com.microsoft::SkipLayerNormalization",
    ),
    "batch normalization": ("BatchNormalization",),
    "reduction": ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
    "pooling": ("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"),
    "move": ("Concat", "Pad", "Slice", "Split", "Tile", "Expand", "DepthToSpace", "SpaceToDepth"),
    "gather": ("Gather", "GatherElements", "GatherND"),
    "resize": ("Resize", "Upsample"),
    "transpose": ("Transpose", "ChannelsFirst"),
    "recurrent": ("LSTM", "GRU", "RNN"),
}
"""Family -> its operators."""

SPLITS = {"product": (4_000_000,), "elementwise": (1_000_000,), "transcendental": (1_000_000,)}
"""Family -> the sizes from which other rates hold: the cache is full, or all threads have work."""


def product(rows: int, depth: int, columns: int) -> Call:
    """Return a product with constant weights."""
    result, macs = (1, rows, columns), rows * depth * columns
    return Call("y = MatMul(x, w)", {"x": (1, rows, depth)}, result, {"w": (depth, columns)}, macs)


def convolution(channels: int, size: int, kernel: int, group: int = 1) -> Call:
    """Return a convolution that keeps its input's shape."""
    pad, weights = kernel // 2, (channels, channels // group, kernel, kernel)
    body = f"y = Conv<pads = [{pad}, {pad}, {pad}, {pad}], group = {group}>(x, w, b)"
    shape, shapes = (1, channels, size, size), {"w": weights, "b": (channels,)}
    return Call(body, {"x": shape}, shape, shapes, prod(weights) * size * size)


def recurrent(steps: int, width: int) -> Call:
    """Return an LSTM over steps of one sequence."""
    body, gates = f"y = LSTM<hidden_size = {width}>(x, w, r, b)", 4 * width
    weights = {"w": (1, gates, width), "r": (1, gates, width), "b": (1, 2 * gates)}
    return Call(
        body, {"x": (steps, 1, width)}, (steps, 1, 1, width), weights, 2 * steps * gates * width
    )


def attention(rows: int, width: int) -> Call:
    """Return self-attention with its three products with weights, with heads of width 32."""
    body = f"y = com.microsoft.Attention<num_heads = {width // 32}>(x, w, b)"
    weights, shape = {"w": (width, 3 * width), "b": (3 * width,)}, (1, rows, width)
    macs = rows * 3 * width * width + 2 * rows * rows * width
    return Call(body, {"x": shape}, shape, weights, macs)


def gather(rows: int, width: int) -> Call:
    """Return a look-up of all rows of a table, from the last to the first."""
    numbers = ", ".join(map(str, range(rows - 1, -1, -1)))
    fixed = f"int64[{rows}] i = {{{numbers}}}"
    return Call("y = Gather(x, i)", {"x": (rows, width)}, (rows, width), fixed=fixed)


def unary(body: str, shape: Shape, *, channels: tuple[str, ...] = ()) -> Call:
    """Return an operator that keeps the shape of x, and of z if it reads that."""
    weights = dict.fromkeys(channels, (shape[1 if len(shape) > 3 else -1],))
    return Call(body, {name: shape for name in "xz" if name in body}, shape, weights)


def reduction(shape: Shape) -> Call:
    """Return a mean over the last axis."""
    result = (*shape[:-1], 1)
    return Call("y = ReduceMean(x, a)", {"x": shape}, result, fixed="int64[1] a = {-1}")


def doubled(shape: Shape) -> Call:
    """Return a resize to twice the height and width."""
    result, scales = (*shape[:2], 2 * shape[2], 2 * shape[3]), "float[4] k = {1, 1, 2, 2}"
    return Call("y = Resize(x, , k)", {"x": shape}, result, fixed=scales)


def joined(shape: Shape) -> Call:
    """Return two tensors side by side."""
    result = (*shape[:-1], 2 * shape[-1])
    return Call("y = Concat<axis = -1>(x, z)", {"x": shape, "z": shape}, result)


def transposed(shape: Shape) -> Call:
    """Return the last two axes exchanged."""
    result = (*shape[:-2], shape[-1], shape[-2])
    return Call("y = Transpose<perm = [0, 2, 1]>(x)", {"x": shape}, result)


ROWS: tuple[Shape, ...] = (
    *((1, 16, 256), (1, 64, 256), (1, 128, 384), (1, 128, 1536), (4, 256, 1024), (8, 256, 1024)),
)
IMAGES: tuple[Shape, ...] = ((1, 32, 28, 28), (1, 64, 56, 56), (1, 64, 112, 112), (4, 128, 80, 80))
PRODUCTS = (
    *((1, 256, 256), (16, 128, 128), (1, 1024, 1024), (16, 384, 384), (64, 256, 256)),
    *((128, 384, 384), (128, 384, 1536), (128, 1536, 384), (256, 768, 768)),
    *((1, 4096, 4096), (1, 8192, 8192)),  # weights that no cache holds
)
CONVOLUTIONS = (
    *((16, 28, 3), (64, 28, 1), (32, 80, 1), (64, 56, 1), (128, 28, 3), (256, 14, 3), (64, 56, 3)),
    *((128, 40, 3), (32, 56, 3, 32), (128, 28, 3, 128), (96, 112, 3, 96)),
)
RECURRENT = ((4, 64), (16, 32), (16, 64), (16, 128), (64, 128), (64, 256))
POOL = "y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
NORM, BATCH = "y = LayerNormalization(x, s, b)", "y = BatchNormalization(x, s, b, m, v)"

# operators: one or some of each family, of which the others take as long
CALLS: dict[str, list[Call]] = {
    "product": [product(*size) for size in PRODUCTS],
    "attention": [attention(*size) for size in ((16, 128), (16, 384), (64, 384), (128, 768))],
    "convolution": [convolution(*size) for size in CONVOLUTIONS],
    "elementwise": [
        unary(b, s) for b in ("y = Add(x, z)", "y = Mul(x, z)", "y = Relu(x)") for s in ROWS
    ],
    "transcendental": [
        unary(f"y = {op}(x)", s) for op in ("Tanh", "Sigmoid", "Gelu") for s in ROWS
    ],
    "softmax": [unary("y = Softmax(x)", shape) for shape in ROWS],
    "normalization": [unary(NORM, shape, channels=("s", "b")) for shape in ROWS],
    "batch normalization": [unary(BATCH, shape, channels=(*"sbmv",)) for shape in IMAGES],
    "reduction": [reduction(shape) for shape in ROWS],
    "pooling": [unary(POOL, shape) for shape in IMAGES],
    "move": [joined(shape) for shape in ROWS],
    "gather": [gather(*size) for size in ((100, 64), (1000, 384), (4000, 384))],
    "resize": [doubled(shape) for shape in IMAGES[:3]],
    "transpose": [transposed(shape) for shape in ROWS],
    "recurrent": [recurrent(*size) for size in RECURRENT],
}
"""Family -> what is measured of it, from small to large."""


def model_of(call: Call, dtype: DType, narrow: Collection[str] = ()) -> onnx.ModelProto:
    """Return the model of a call in a type.

    Args:
        call: The call.
        dtype: The type of its floats.
        narrow: The operators whose stash_type is a low type, too, as targets say.
    """
    values = [f"{dtype.onnx}{list(shape)} {name}" for name, shape in call.inputs.items()]
    text = f"g ({', '.join(values)}) => ({dtype.onnx}{list(call.made)} y)"
    text += f" <{call.fixed}>" if call.fixed else ""
    model = parsed(f"{text} {{ {with_stash(call.body, dtype, narrow)} }}")
    model.graph.initializer.extend(weight(n, s, dtype) for n, s in call.weights.items())
    return model


def with_stash(body: str, dtype: DType, narrow: Collection[str]) -> str:
    """Return ONNX text whose normalizations have a low type as their stash_type, if it is one."""
    if dtype is not FLOAT32:
        for operator in narrow:
            body = body.replace(f"{operator}(", f"{operator}<stash_type = {dtype.number}>(")
    return body


def parsed(text: str) -> onnx.ModelProto:
    """Return the model of a graph in ONNX text."""
    opsets = '["" : 22, "com.microsoft" : 1]'
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: {opsets}> {text}")


def weight(name: str, shape: Shape, dtype: DType) -> onnx.TensorProto:
    """Return an initializer of numbers between 0 and 1."""
    content = np.random.default_rng(0).random(shape, np.float32).astype(dtype.numpy)
    return onnx.helper.make_tensor(name, dtype.number, shape, content.tobytes(), raw=True)
