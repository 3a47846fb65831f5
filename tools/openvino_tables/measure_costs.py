#!/usr/bin/env python3
"""Write the table of costs of OpenVINO by measuring: lists/costs/openvino_<version>.json.

Usage: measure_costs.py [--output DIR] [--threads N] [--sessions N]

Models of one operator, and of two where it is asked what they cost together, run with the profile
of the engine, in float32 and in bfloat16 by turns. A time is the least of many runs in several
sessions, less what running an empty model takes.
Of every family's times c + e x elements + m x multiply-accumulates is fitted with relative errors
and no negative number. What a cast costs is what the two take with it less what they take without;
what a join saves, what two operators apart take less what they take together. Takes five minutes on
two quiet cores; needs the extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.parser

from amp_rewrite.dtypes import BFLOAT16, FLOAT32, DType
from amp_rewrite.runtimes.openvino.compiled_model import Session
from amp_rewrite.runtimes.openvino.package import computes_in, import_runtime, runtime_version

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "lists" / "costs"
TYPES = (FLOAT32, BFLOAT16)
RUNS = 60

LAYOUT = "Reorder"
"""The operator by which OpenVINO changes a layout at the ends of a model; inside there are few."""

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
        """What it reads and writes, weights included; of a table, the rows that are read."""
        return sum(map(prod, (*self.inputs.values(), *self.weights.values(), self.made)))


FAMILIES: dict[str, tuple[str, ...]] = {
    "product": ("MatMul", "Gemm"),
    "convolution": ("Conv", "ConvTranspose"),
    "elementwise": (
        *("Abs", "Add", "Ceil", "Clip", "Div", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu"),
        *("Max", "Mean", "Min", "Mul", "Neg", "PRelu", "Reciprocal", "Relu", "Round", "Sqrt"),
        *("Sub", "Sum", "Where", "Pow"),
    ),
    "transcendental": (
        *("Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Selu", "Sigmoid", "Softplus", "Softsign"),
        *("Swish", "Tanh"),
    ),
    "softmax": ("Softmax", "LogSoftmax"),
    "normalization": ("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
    "batch normalization": ("BatchNormalization",),
    "reduction": ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
    "pooling": ("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"),
    "move": ("Concat", "Pad", "Slice", "Split", "Tile", "Expand", "DepthToSpace", "SpaceToDepth"),
    "gather": ("Gather", "GatherElements", "GatherND"),
    "resize": ("Resize", "Upsample"),
    "transpose": ("Transpose",),
    "recurrent": ("LSTM", "GRU", "RNN"),
}
"""Family -> its operators."""

SPLITS = {"product": (4_000_000,), "elementwise": (1_000_000,), "transcendental": (1_000_000,)}
"""Family -> the sizes from which other rates hold: the cache is full, or all threads have work."""


def product(rows: int, depth: int, columns: int) -> Call:
    """Return a product with constant weights."""
    made, macs = (1, rows, columns), rows * depth * columns
    return Call("y = MatMul(x, w)", {"x": (1, rows, depth)}, made, {"w": (depth, columns)}, macs)


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


def gather(rows: int, width: int) -> Call:
    """Return a look-up of half the rows of a table."""
    made, table = (rows // 2, width), {"x": (rows, width)}
    numbers = ", ".join(str(2 * i) for i in range(rows // 2))
    return Call("y = Gather(x, i)", table, made, fixed=f"int64[{rows // 2}] i = {{{numbers}}}")


def unary(body: str, shape: Shape, *, channels: tuple[str, ...] = (), fixed: str = "") -> Call:
    """Return an operator that keeps the shape of x, and of z if it reads that."""
    weights = dict.fromkeys(channels, (shape[1 if len(shape) > 3 else -1],))
    return Call(body, {name: shape for name in "xz" if name in body}, shape, weights, fixed=fixed)


def reduction(shape: Shape) -> Call:
    """Return a mean over the last axis."""
    made = (*shape[:-1], 1)
    return Call("y = ReduceMean(x, a)", {"x": shape}, made, fixed="int64[1] a = {-1}")


def doubled(shape: Shape) -> Call:
    """Return a resize to twice the height and width."""
    made, scales = (*shape[:2], 2 * shape[2], 2 * shape[3]), "float[4] k = {1, 1, 2, 2}"
    return Call("y = Resize(x, , k)", {"x": shape}, made, fixed=scales)


def joined(shape: Shape) -> Call:
    """Return two tensors side by side."""
    made = (*shape[:-1], 2 * shape[-1])
    return Call("y = Concat<axis = -1>(x, z)", {"x": shape, "z": shape}, made)


def transposed(shape: Shape) -> Call:
    """Return the last two axes exchanged."""
    made = (*shape[:-2], shape[-1], shape[-2])
    return Call("y = Transpose<perm = [0, 2, 1]>(x)", {"x": shape}, made)


ROWS: tuple[Shape, ...] = (
    *((1, 16, 256), (1, 64, 256), (1, 128, 384), (1, 128, 1536), (4, 256, 1024), (8, 256, 1024)),
)
IMAGES: tuple[Shape, ...] = ((1, 32, 28, 28), (1, 64, 56, 56), (1, 64, 112, 112), (4, 128, 80, 80))
PRODUCTS = (
    *((1, 256, 256), (16, 128, 128), (1, 1024, 1024), (16, 384, 384), (64, 256, 256)),
    *((128, 384, 384), (128, 384, 1536), (128, 1536, 384), (256, 768, 768)),
)
CONVOLUTIONS = (
    *((16, 28, 3), (64, 28, 1), (32, 80, 1), (64, 56, 1), (128, 28, 3), (256, 14, 3), (64, 56, 3)),
    *((128, 40, 3), (32, 56, 3, 32), (128, 28, 3, 128), (96, 112, 3, 96)),
)
POOL = "y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)"
NORM, BATCH = "y = LayerNormalization(x, s, b)", "y = BatchNormalization(x, s, b, m, v)"

CALLS: dict[str, list[Call]] = {
    "product": [product(*size) for size in PRODUCTS],
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
    "recurrent": [recurrent(*size) for size in ((16, 64), (64, 128), (64, 256))],
}
"""Family -> what is measured of it, from small to large."""

ENDS = {
    "none": "",
    "product": "MatMul({}, w)",
    "convolution": "Conv({}, k)",
    "elementwise": "Relu({})",
    "transcendental": "Tanh({})",
    "softmax": "Softmax({})",
    "normalization": "LayerNormalization({}, s, s)",
}
"""Family -> an operator that keeps the shape of what stands beside a cast or in a join."""

PAIRS = (
    *(("product", "elementwise"), ("product", "transcendental"), ("elementwise", "elementwise")),
    *(("convolution", "elementwise"), ("convolution", "transcendental")),
    *(("elementwise", "transcendental"), ("transcendental", "elementwise")),
    *(("normalization", "elementwise"), ("elementwise", "normalization")),
    *(("softmax", "elementwise"), ("elementwise", "softmax")),
)
"""The pairs of families of which it is measured what computing them together saves."""

SIDES, CHANNELS = (16, 48), 32
"""What is between two operators has the shape (1, CHANNELS, n, n)."""


def model_of(call: Call, dtype: DType) -> onnx.ModelProto:
    """Return the model of a call in a type."""
    values = [f"{dtype.onnx}{list(shape)} {name}" for name, shape in call.inputs.items()]
    text = f"g ({', '.join(values)}) => ({dtype.onnx}{list(call.made)} y)"
    text += f" <{call.fixed}>" if call.fixed else ""
    model = parsed(f"{text} {{ {call.body} }}")
    model.graph.initializer.extend(weight(n, s, dtype) for n, s in call.weights.items())
    return model


def parsed(text: str) -> onnx.ModelProto:
    """Return the model of a graph in ONNX text."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')


def weight(name: str, shape: Shape, dtype: DType) -> onnx.TensorProto:
    """Return an initializer of numbers between 0 and 1."""
    content = np.random.default_rng(0).random(shape, np.float32).astype(dtype.numpy)
    return onnx.helper.make_tensor(name, dtype.number, shape, content.tobytes(), raw=True)


def microseconds(models: Sequence[onnx.ModelProto], options: argparse.Namespace) -> list[float]:
    """Return what models take, the least of several sessions each, which take turns."""
    least = [float("inf")] * len(models)
    for _ in range(options.sessions):
        for index, model in enumerate(models):
            least[index] = min(least[index], _session(model, options.threads))
    return [max(0.0, time_ - _empty(options.threads)) for time_ in least]


@cache
def _empty(threads: int) -> float:
    """Return what running a model takes in which nothing is to be done."""
    return min(
        _session(parsed("g (float[1] x) => (float[1] y) { y = Relu(x) }"), threads)
        for _ in range(5)
    )


def _session(model: onnx.ModelProto, threads: int) -> float:
    """Return the least of the times of many runs, without what layouts take of it."""
    session = Session(model, threads=threads, profile=True)
    binding = session.bind()
    for value in model.graph.input:
        binding.read(value.name, _feed(value))
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        binding.run("it failed")
        times.append(time.perf_counter() - start)
    nodes = session.ran_nodes()
    layouts = sum(node.microseconds for node in nodes if node.op == LAYOUT)
    share = layouts / max(1, sum(node.microseconds for node in nodes))
    return 1e6 * min(times) * (1 - share)


def _feed(value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    given = value.type.tensor_type
    shape = [dim.dim_value for dim in given.shape.dim]
    numbers = np.random.default_rng(0).random(shape, np.float32)
    return numbers.astype(onnx.helper.tensor_dtype_to_np_dtype(given.elem_type))


def fitted(sizes: Sequence[tuple[int, int]], times: Sequence[float]) -> dict[str, float]:
    """Return rates by which calls take what they took, with the least relative errors.

    Args:
        sizes: Elements and multiply-accumulates of each call.
        times: Microseconds of each call.
    """
    rows = np.array([(1.0, elements, macs) for elements, macs in sizes])
    scaled = rows / np.maximum(times, 1.0)[:, None]
    target = np.asarray(times) / np.maximum(times, 1.0)
    used = [0, 1, 2] if rows[:, 2].any() else [0, 1]
    while True:
        found = np.linalg.lstsq(scaled[:, used], target, rcond=None)[0]
        if (found >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(found * scaled[:, used].mean(0))))
    named = dict(zip(used, found, strict=True))
    return {
        key: float(f"{max(0.0, named.get(index, 0.0)):.3g}")
        for index, key in enumerate(("call", "element", "mac"))
    }


def rates(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of costs."""
    for family, calls in CALLS.items():
        models = [model_of(call, dtype) for call in calls for dtype in TYPES]
        if family == "convolution":  # in a row, for at the ends of a model layouts change
            pairs = [_in_rows(model, options) for model in models]
            took = [max(0.0, longer - one) / 2 for one, longer in pairs]
        else:
            took = microseconds(models, options)
        for offset, dtype in enumerate(TYPES):
            times = took[offset :: len(TYPES)]
            for least, part in _parts(calls, SPLITS.get(family, ())):
                chosen = [index for index in part if times[index] > 0]  # else it was all layouts
                sizes = [(calls[i].elements, calls[i].macs) for i in chosen]
                row = fitted(sizes, [times[i] for i in chosen])
                yield {"family": family, "type": dtype.name, "from": least, **row}
        print(family, [f"{a:.0f}/{b:.0f}" for a, b in zip(took[::2], took[1::2], strict=True)])


def _in_rows(model: onnx.ModelProto, options: argparse.Namespace) -> list[float]:
    """Return what a model of one node takes, and what three such nodes in a row take."""
    row = onnx.ModelProto()
    row.CopyFrom(model)
    for index in range(2):
        node = row.graph.node.add()
        node.CopyFrom(model.graph.node[0])
        row.graph.node[index].output[0] = node.input[0] = f"h{index}"
    return microseconds([model, row], options)


def _parts(calls: Sequence[Call], splits: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the least size of a row, and which calls it is fitted to."""
    sizes = [call.macs or call.elements for call in calls]
    for least, end in zip((0, *splits), (*splits, float("inf")), strict=True):
        yield least, [i for i, size in enumerate(sizes) if least <= size < end]


_FILTER = (CHANNELS, CHANNELS, 1, 1)


def _shape(n: int) -> list[int]:
    return [1, CHANNELS, n, n]


def between(first: str, second: str, types: tuple[DType, DType], n: int) -> onnx.ModelProto:
    """Return a model of two operators, with a Cast between them if their types differ."""
    given, made = types
    nodes = [f"a = {ENDS[first].format('x')}"] if first != "none" else []
    value = "a" if nodes else "x"
    if given is not made:
        nodes.append(f"c = Cast<to = {made.number}>({value})")
        value = "c"
    if second != "none":
        nodes.append(f"y = {ENDS[second].format(value)}".replace("w)", "v)").replace("k)", "l)"))
        nodes[-1] = nodes[-1].replace(", s, s)", ", t, t)")
    else:
        nodes[-1] = "y" + nodes[-1][1:]
    model = parsed(
        f"g ({given.onnx}{_shape(n)} x) => ({made.onnx}{_shape(n)} y) {{ {' '.join(nodes)} }}"
    )
    reads = {name for node in model.graph.node for name in node.input}
    for name, shape, dtype in (
        *(("w", (n, n), given), ("s", (n,), given), ("v", (n, n), made), ("t", (n,), made)),
        *(("k", _FILTER, given), ("l", _FILTER, made)),
    ):
        if name in reads:
            model.graph.initializer.append(weight(name, shape, dtype))
    return model


def casts(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of casts: what two operators take with one, less what they take apart."""
    for given, made in (TYPES, TYPES[::-1]):
        for first in ENDS:
            for second in ENDS:
                if first == second == "none":
                    continue
                times: list[float] = []
                for n in SIDES:
                    ends = [(first, "none", given)] if first != "none" else []
                    ends += [("none", second, made)] if second != "none" else []
                    models = [between(a, b, (dtype, dtype), n) for a, b, dtype in ends]
                    models.append(between(first, second, (given, made), n))
                    *parts, whole = microseconds(models, options)
                    times.append(max(0.0, whole - sum(parts)))
                row = fitted([(CHANNELS * n * n, 0) for n in SIDES], times)
                yield {"to": made.name, "producer": first, "consumer": second, **_rate(row)}
    for given, made in (TYPES, TYPES[::-1]):
        times = [microseconds([_cast_alone(given, made, n)], options)[0] for n in SIDES]
        row = fitted([(CHANNELS * n * n, 0) for n in SIDES], times)
        yield {"to": made.name, "producer": "*", "consumer": "*", **_rate(row)}


def _cast_alone(given: DType, made: DType, n: int) -> onnx.ModelProto:
    types = f"g ({given.onnx}{_shape(n)} x) => ({made.onnx}{_shape(n)} y)"
    return parsed(f"{types} {{ y = Cast<to = {made.number}>(x) }}")


def joins(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of joins: what two operators take apart, less what they take together."""
    for first, second in PAIRS:
        saves: dict[str, dict[str, float]] = {}
        for dtype in TYPES:
            times: list[float] = []
            for n in SIDES:
                types = dtype, dtype
                models = [between(a, b, types, n) for a, b in _apart(first, second)]
                whole, *parts = microseconds(models, options)
                times.append(max(0.0, sum(parts) - whole))
            saves[dtype.name] = _rate(fitted([(CHANNELS * n * n, 0) for n in SIDES], times))
        yield {"producer": first, "consumer": second, "saves": saves}


def _apart(first: str, second: str) -> tuple[tuple[str, str], ...]:
    return (first, second), (first, "none"), ("none", second)


def _rate(row: dict[str, float]) -> dict[str, float]:
    return {key: row[key] for key in ("call", "element")}


def device(threads: int) -> str:
    """Return the processor in words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {threads} threads"


def to_text(table: dict[str, Any]) -> str:
    """Return a table as JSON, a row a line."""
    lines = [f" {json.dumps(key)}: {json.dumps(table[key])}," for key in (*table,)[:-4]]
    for key in (*table,)[-4:]:
        content = table[key]
        named = isinstance(content, dict)
        rows = (
            [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in content.items()]
            if named
            else [f"  {json.dumps(row)}" for row in content]
        )
        ends = "{}" if named else "[]"
        lines.append(f" {json.dumps(key)}: {ends[0]}\n" + ",\n".join(rows) + f"\n {ends[1]},")
    return "{\n" + "\n".join(lines).rstrip(",") + "\n}\n"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the table of costs of OpenVINO.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=4, help="how often each model is loaded")
    options = parser.parse_args()
    if not computes_in(BFLOAT16.name):
        sys.exit("the processor has no instructions for bfloat16")
    version = runtime_version(import_runtime())
    table = {
        "version": 1,
        "runtime": f"openvino {version}",
        "device": device(options.threads),
        "source": "tools/openvino_tables/measure_costs.py",
        "families": FAMILIES,
        "costs": [*rates(options)],
        "casts": [*casts(options)],
        "joins": [*joins(options)],
    }
    options.output.mkdir(exist_ok=True)
    path = options.output / f"openvino_{version.rpartition('.')[0]}.json"
    path.write_text(to_text(table), "utf-8")
    print(path)


if __name__ == "__main__":
    main()
