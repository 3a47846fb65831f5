"""What may stand between a stream that grows beyond float16 and the norm that ends it.

Each spelling reads the stream v (2, 32) and makes y (2, 32).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

WIDTH = 32
_STREAM = "h = MatMul(x, w) v0 = Add(h, b) v1 = Add(v0, b) v = Add(v1, b)"
_TABLE = "e = Gather(table, ids) p = MatMul(x, w) h = Add(e, p) v0 = Add(h, b) v1 = Add(v0, b) "
_NORM = "n = LayerNormalization(y, s, t) z = MatMul(n, w)"
_OLD = "d = Mul(y, y) q = ReduceMean<axes = [1]>(d) r = Sqrt(q) n = Div(y, r) z = MatMul(n, w)"
_MIB = "com.microsoft"

Held = dict[str, Any]


@dataclass(frozen=True)
class Spelling:
    """Nodes between a stream and its norm, which make y of v."""

    nodes: str
    held: Held = field(default_factory=dict[str, Any])
    why: str = ""  # part of the reason for which `auto` scales nothing; empty where it scales
    opset: int = 21
    inputs: str = ""  # more inputs of the model
    outputs: str = ""
    front: str = _STREAM  # makes v of x
    back: str = _NORM  # makes z of y
    wide: int = WIDTH  # of z


def _drawn(*shape: int, scale: float = 0.2) -> Any:
    return np.random.default_rng(sum(shape)).normal(0, scale, shape).astype(np.float32)


def _codes(*shape: int, dtype: Any = np.int8) -> Any:
    info = np.iinfo(dtype)
    return np.random.default_rng(1).integers(info.min, info.max, shape).astype(dtype)


def _ints(*numbers: Any) -> Any:
    return np.array(numbers, np.int64)


_IMAGE: Held = {"shape": _ints(2, 8, 4), "flat": _ints(2, WIDTH), "of8": _drawn(8)}
_ROWS: Held = {"first": _ints(0)}
_SCALES = (0.05 + 0.01 * np.abs(_drawn(64))).astype(np.float32)
_BITS: Held = {"codes": _codes(WIDTH, 2, 8, dtype=np.uint8), "scales": _SCALES}
_INT8: Held = {"codes": _codes(WIDTH, WIDTH)}
_ONE = np.float32(0.01)
_N_BITS = f"m = {_MIB}.MatMulNBits<K = 32, N = 32, bits = 4, block_size = 16>"
_NORMED = "a = LayerNormalization(v, s, t) "
_LAST = "n = LayerNormalization(y, s, t) "
_TURNED = _LAST + "u = Transpose<perm = [1, 0]>(table) z = MatMul(n, u)"
_TIED: dict[str, Any] = {
    "inputs": ", int64[2] ids",
    "wide": 200,
    "front": _TABLE + "v = Add(v1, b)",
}
_EMBEDDED: Held = {"table": _drawn(200, WIDTH)}
_SKIPPED = "r = Unsqueeze(v, first) "
_GATES: Held = {"wx": _drawn(1, 128, WIDTH), "wh": _drawn(1, 128, WIDTH), "two": _ints(0, 1)}

SPELLINGS = {
    "tied embeddings": Spelling("y = Identity(v)", _EMBEDDED, back=_TURNED, **_TIED),
    "4 bits": Spelling(f"{_NORMED} {_N_BITS}(a, codes, scales) y = Add(v, m)", _BITS),
    "int8": Spelling(
        _NORMED + "d = DequantizeLinear(codes, scale) m = MatMul(a, d) y = Add(v, m)",
        {**_INT8, "scale": _ONE},
    ),
    "int8 values": Spelling(
        "q = QuantizeLinear(v, scale, zero) y = DequantizeLinear(q, scale, zero)",
        {"scale": np.float32(1000), "zero": np.int8(0)},
    ),
    "GroupNormalization": Spelling(
        "r = Reshape(v, shape) g = GroupNormalization<num_groups = 4>(r, of8, of8) "
        "y = Reshape(g, flat)",
        _IMAGE,
    ),
    "SkipLayerNormalization": Spelling(
        f"{_SKIPPED} g, i, j, o = {_MIB}.SkipLayerNormalization(r, r, s, t, t) p = MatMul(g, w) "
        f"q = {_MIB}.SkipLayerNormalization(p, o, s, t) y = Squeeze(q, first)",
        _ROWS,
    ),
    "BatchNormalization": Spelling(
        "y = BatchNormalization(v, s, t, mean, var)",
        {"mean": _drawn(WIDTH), "var": 1 + np.abs(_drawn(WIDTH))},
    ),
    "an infinite mask": Spelling(
        "c = Greater(x, low) m = Where(c, v, low) y = Relu(m)",
        {"low": np.float32(-np.inf)},
        why="the constant low holds infinite numbers",
    ),
    "Concat": Spelling(
        "k = MatMul(x, w) c = Concat<axis = 1>(v, k) y = MatMul(c, long)",
        {"long": _drawn(64, WIDTH)},
    ),
    "Pad": Spelling(
        "p = Pad(v, pads, fill) y = Slice(p, first, last, axis)",
        {
            "pads": _ints(0, 1, 0, 0),
            "fill": np.float32(0.3),
            "last": _ints(WIDTH),
            "axis": _ints(1),
            **_ROWS,
        },
    ),
    "Pad of opset 9": Spelling(
        "p = Pad<pads = [0, 1, 0, 0], value = 7.5>(v) "
        "y = Slice<axes = [1], starts = [0], ends = [32]>(p)",
        opset=9,
        back=_OLD,
    ),
    "Clip at the end of float32": Spelling(
        "y = Clip(v, low, high)", {"low": np.float32(-3.4e38), "high": np.float32(3.4e38)}
    ),
    "ReduceL2": Spelling(
        "r = ReduceL2<keepdims = 1>(v, axis) e = Max(r, least) y = Div(v, e)",
        {"axis": _ints(1), "least": np.float32(1e-3)},
    ),
    "Einsum": Spelling(
        'y = Einsum<equation = "ab,bc,c->ac">(v, long, half)',
        {"long": _drawn(WIDTH, WIDTH), "half": _drawn(WIDTH)},
    ),
    "ScatterND": Spelling(
        'j = ScatterND<reduction = "add">(v, i, row) y = ScatterND(rows, both, j)',
        {
            "i": _ints([0]),
            "both": _ints([0], [1]),
            "row": _drawn(1, WIDTH),
            "rows": _drawn(2, WIDTH),
        },
    ),
    "LSTM": Spelling(
        _NORMED + "u = Unsqueeze(a, first) l, lh, lc = LSTM<hidden_size = 32>(u, wx, wh) "
        "k = Squeeze(l, two) y = Add(v, k)",
        {**_GATES, **_ROWS},
        why="(LSTM) reads or makes it",
    ),
    "Attention": Spelling(
        _NORMED + "u = Unsqueeze(a, first) "
        "m = Attention<q_num_heads = 4, kv_num_heads = 4>(u, u, u) "
        "k = Squeeze(m, first) p = MatMul(k, w) y = Add(v, p)",
        _ROWS,
        opset=23,
    ),
    "a constant that is an output": Spelling(
        "y = Add(v, c)",
        {"c": _drawn(WIDTH)},
        outputs=", float[32] c",
        why="c is an output of the model",
    ),
    "weights of 1e-7": Spelling(
        "k = MatMul(x, tiny) y = Add(v, k)",
        {"tiny": _drawn(WIDTH, WIDTH, scale=1e-7)},
        why="the constant tiny would become subnormal",
    ),
    "values of 1e30": Spelling(
        "i = Add(v, huge) y = Sub(i, b)",
        {"huge": np.full(WIDTH, 1e30, np.float32)},
        why="would become subnormal",
    ),
    "a shared bias": Spelling(
        "k = Sigmoid(x) i = Add(k, b) j = LayerNormalization(i, s, t) y = Add(v, j)"
    ),
    "If": Spelling(
        "y = If(g) <then_branch = i () => (float[2,32] p) { p = Identity(rows) }, "
        "else_branch = j () => (float[2,32] q) { q = Sub(v, b) }>",
        {"rows": _drawn(2, WIDTH)},
        inputs=", bool g",
    ),
    "Loop": Spelling(
        "y = Loop(trips, yes, v) <body = i (int64 i, bool c, float[2,32] a) => "
        "(bool d, float[2,32] o) { d = Identity(c) n1 = LayerNormalization(a, s, t) "
        "p = MatMul(n1, w) q = Add(p, b) o = Add(a, q) }>",
        {"trips": np.array(3), "yes": np.array(True)},
    ),
}
"""Name -> a spelling."""


def spelled(name: str, dtype: Any = np.float32) -> onnx.ModelProto:
    """Return the model of a spelling; inputs x (2, 32) and its own, output z (2, wide).

    Args:
        name: Of the spelling.
        dtype: The type of every float, float32 or float16.
    """
    found = SPELLINGS[name]
    ends = f"(float[2,32] x{found.inputs}) => (float[2,{found.wide}] z{found.outputs})"
    opsets = f'["" : {found.opset}, "{_MIB}" : 1]'
    nodes = f"{found.front} {found.nodes} {found.back}"
    text = f"<ir_version: 10, opset_import: {opsets}> m {ends} {{{nodes}}}"
    if dtype != np.float32:
        text = text.replace("float[", "float16[")
    model = onnx.parser.parse_model(text)
    bias = np.zeros(WIDTH, np.float32)
    bias[[3, 9]] = 4e4, -3e4
    common = {"w": _drawn(WIDTH, WIDTH), "b": bias, "s": 1 + _drawn(WIDTH), "t": _drawn(WIDTH)}
    for constant, array in {**common, **found.held}.items():
        typed = np.asarray(array)
        typed = typed.astype(dtype) if typed.dtype.kind == "f" else typed
        model.graph.initializer.append(numpy_helper.from_array(typed, constant))
    return model


def spelled_feeds(
    name: str, scale: float = 1.0, seed: int = 0, dtype: Any = np.float32
) -> dict[str, Any]:
    """Return a batch for the model of a spelling."""
    rng, found = np.random.default_rng(seed), SPELLINGS[name]
    feeds: dict[str, Any] = {"x": (scale * rng.normal(size=(2, WIDTH))).astype(dtype)}
    if "ids" in found.inputs:
        feeds["ids"] = rng.integers(0, 200, 2)
    if "bool" in found.inputs:
        feeds["g"] = np.array(False)
    return feeds
