"""Build the synthetic stress models.

    python tools/corpus/make_synth.py DEST [NAME ...]

Names are chain8, chain10k, chain100k, big3g (3 GiB of external data), loop_capture and rxnmap_like;
without any: chain100k, big3g and loop_capture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

_BLOCK = (
    "LayerNormalization",
    "MatMul",
    "Relu",
    "Add",
    "Softmax",
    "Exp",
    "ReduceMean",
    "Sub",
)
_WEIGHTS = 64


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto],
    name: str,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="make_synth")


def _float(name: str, shape: list[int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _tensor(value: Any, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, np.float32), name)


def chain(path: Path, nodes: int, rows: int = 4, width: int = 16) -> None:
    """Write a DAG of exactly `nodes` small operators over values of shape (rows, width)."""
    rng = np.random.default_rng(0)
    weights = [
        _tensor(rng.standard_normal((width, width)) / np.sqrt(width), f"w{i}")
        for i in range(_WEIGHTS)
    ]
    weights += [_tensor(np.ones(width), "gamma"), _tensor(np.zeros(width), "beta")]
    made: list[onnx.NodeProto] = []
    previous = skip = exponential = "x"
    for i in range(nodes):
        operator = _BLOCK[i % len(_BLOCK)]
        output = f"t{i}" if i < nodes - 1 else "y"
        inputs: list[str] = [previous]
        attributes: dict[str, Any] = {}
        if operator == "LayerNormalization":
            inputs, attributes = [previous, "gamma", "beta"], {"axis": -1}
            skip = previous
        elif operator == "MatMul":
            inputs = [previous, f"w{i // len(_BLOCK) % _WEIGHTS}"]
        elif operator == "Add":
            inputs = [previous, skip]
        elif operator == "Softmax":
            attributes = {"axis": -1}
        elif operator == "ReduceMean":
            attributes, exponential = {"axes": [-1], "keepdims": 1}, previous
        elif operator == "Sub":
            inputs = [exponential, previous]
        made.append(make_node(operator, inputs, [output], name=f"{operator}_{i}", **attributes))
        previous = output
    shape = [rows, width]
    ends = [_float("x", shape)], [_float("y", shape)]
    onnx.save(_model(made, *ends, weights, path.stem), str(path))


def chain8(path: Path) -> None:
    """Write a chain of 8 nodes: what a conversion of these operators costs before their number."""
    chain(path, 8)


def chain100k(path: Path) -> None:
    """Write a chain of 100,000 nodes."""
    chain(path, 100_000)


def chain10k(path: Path) -> None:
    """Write a chain of 10,000 nodes."""
    chain(path, 10_000)


class _Transformer:
    """Nodes of a transformer-like network whose weights go to a file as they are made."""

    def __init__(self, stream: BinaryIO, location: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._stream = stream
        self._location = location
        self._offset = 0
        self._rng = np.random.default_rng(0)

    def weight(self, name: str, shape: tuple[int, int]) -> str:
        """Append one weight (normal * 0.02) to the file and return its name."""
        values = self._rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(0.02)
        tensor = TensorProto(
            name=name,
            data_type=TensorProto.FLOAT,
            dims=shape,
            data_location=TensorProto.EXTERNAL,
        )
        facts = {"location": self._location, "offset": self._offset, "length": values.nbytes}
        for key, value in facts.items():
            tensor.external_data.add(key=key, value=str(value))
        self._stream.write(values.data)
        self._offset += values.nbytes
        self.weights.append(tensor)
        return name

    def node(self, layer: int, operator: str, inputs: list[str], tag: str, **kw: Any) -> str:
        """Append one node and return its output."""
        output = f"L{layer}_{tag}"
        self.nodes.append(make_node(operator, inputs, [output], name=f"L{layer}/{tag}", **kw))
        return output

    def layer(self, i: int, x: str, width: int, hidden: int) -> str:
        """Append attention and a feed-forward block; return the layer's output."""
        a = self.node(i, "LayerNormalization", [x, "gamma", "beta"], "ln1", axis=-1)
        q, k, v = (
            self.node(i, "MatMul", [a, self.weight(f"L{i}_w{c}", (width, width))], c) for c in "qkv"
        )
        kt = self.node(i, "Transpose", [k], "kt", perm=[0, 2, 1])
        scores = self.node(i, "Mul", [self.node(i, "MatMul", [q, kt], "qk"), "scale"], "qks")
        p = self.node(i, "Softmax", [scores], "p", axis=-1)
        pv = self.node(i, "MatMul", [p, v], "pv")
        o = self.node(i, "MatMul", [pv, self.weight(f"L{i}_wo", (width, width))], "o")
        x = self.node(i, "Add", [x, o], "r1")
        b = self.node(i, "LayerNormalization", [x, "gamma", "beta"], "ln2", axis=-1)
        up = self.node(i, "MatMul", [b, self.weight(f"L{i}_w1", (width, hidden))], "up")
        erf = self.node(i, "Erf", [self.node(i, "Mul", [up, "rsqrt2"], "g0")], "g1")
        gate = self.node(i, "Add", [erf, "one"], "g2")
        gelu = self.node(i, "Mul", [self.node(i, "Mul", [up, gate], "g3"), "half"], "gelu")
        down = self.node(i, "MatMul", [gelu, self.weight(f"L{i}_w2", (hidden, width))], "down")
        return self.node(i, "Add", [x, down], "r2")


def big3g(path: Path, layers: int = 24, width: int = 1664, hidden: int = 6656) -> None:
    """Write 24 transformer-like layers with about 3 GiB of weights in one external-data file."""
    data = path.with_suffix(".data")
    constants = [
        _tensor(np.ones(width), "gamma"),
        _tensor(np.zeros(width), "beta"),
        _tensor(width**-0.5, "scale"),
        _tensor(2**-0.5, "rsqrt2"),
        _tensor(1, "one"),
        _tensor(0.5, "half"),
    ]
    with data.open("wb") as stream:
        network, x = _Transformer(stream, data.name), "x"
        for i in range(layers):
            x = network.layer(i, x, width, hidden)
    nodes = [*network.nodes, make_node("Identity", [x], ["y"], name="out")]
    shape = [1, 8, width]
    ends = [_float("x", shape)], [_float("y", shape)]
    onnx.save(_model(nodes, *ends, constants + network.weights, "big3g"), str(path))


def _branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
    then = helper.make_graph(
        [make_node("Mul", ["e", "k"], ["then_out"], name="then_mul")],
        "then",
        [],
        [_float("then_out", None)],
    )
    other = helper.make_graph(
        [
            make_node("MatMul", ["e", "W"], ["else_mm"], name="else_matmul"),
            make_node("Mul", ["else_mm", "k"], ["else_out"], name="else_mul"),
        ],
        "else",
        [],
        [_float("else_out", None)],
    )
    return then, other


def _body(width: int) -> onnx.GraphProto:
    then, other = _branches()
    scalar = helper.make_tensor_value_info
    nodes = [
        make_node("MatMul", ["h_in", "W"], ["mm"], name="body_matmul"),
        make_node("Add", ["mm", "b"], ["mmb"], name="body_add"),
        make_node("Tanh", ["mmb"], ["th"], name="body_tanh"),
        make_node("Exp", ["th"], ["e"], name="body_exp"),
        make_node("Less", ["i", "three"], ["early"], name="body_less"),
        make_node("If", ["early"], ["br"], name="body_if", then_branch=then, else_branch=other),
        make_node("Add", ["br", "pre"], ["h_out"], name="body_res"),
        make_node("ReduceMean", ["h_out"], ["m"], name="body_mean", axes=[-1], keepdims=0),
        make_node("Identity", ["cond_in"], ["cond_out"], name="body_cond"),
    ]
    inputs = [
        scalar("i", TensorProto.INT64, []),
        scalar("cond_in", TensorProto.BOOL, []),
        _float("h_in", [2, width]),
    ]
    outputs = [
        scalar("cond_out", TensorProto.BOOL, []),
        _float("h_out", [2, width]),
        _float("m", [2]),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


def loop_capture(path: Path, width: int = 32, trips: int = 6) -> None:
    """Write a Loop whose body and nested If use weights that the main graph uses as well."""
    rng = np.random.default_rng(0)
    initializers = [
        _tensor(rng.standard_normal((width, width)) / np.sqrt(width), "W"),
        _tensor(rng.standard_normal(width) * 0.1, "b"),
        _tensor(0.1, "k"),
        numpy_helper.from_array(np.array(trips, np.int64), "trips"),
        numpy_helper.from_array(np.array(True), "true"),
        numpy_helper.from_array(np.array(3, np.int64), "three"),
    ]
    nodes = [
        make_node("MatMul", ["x", "W"], ["xm"], name="pre_matmul"),
        make_node("Add", ["xm", "b"], ["pre"], name="pre_add"),
        make_node(
            "Loop", ["trips", "true", "pre"], ["h_final", "means"], name="loop", body=_body(width)
        ),
        make_node("Gemm", ["h_final", "W", "b"], ["y"], name="post_gemm"),
        make_node("Softmax", ["y"], ["p"], name="post_softmax", axis=-1),
    ]
    inputs, outputs = (
        [_float("x", [2, width])],
        [_float("p", [2, width]), _float("means", [trips, 2])],
    )
    onnx.save(_model(nodes, inputs, outputs, initializers, "loop_capture"), str(path))


def rxnmap_like(path: Path, layers: int = 31, width: int = 64) -> None:
    """Write a model with shared weights: 28 initializers used 186 times (6 a layer).

    Layers take turns on the weights, and each also feeds an operator that stays float32 (Pow), as
    in a model whose embedding is both looked up and normalised.
    """
    rng = np.random.default_rng(0)
    count = 28
    weights = [
        _tensor(rng.standard_normal((width, width)) / np.sqrt(width), f"W{i}") for i in range(count)
    ]
    nodes: list[onnx.NodeProto] = []
    x, used = "x", 0
    for i in range(layers):
        for j in range(6):
            output = f"h{i}_{j}"
            inputs = [x, f"W{used % count}"]
            nodes.append(make_node("MatMul", inputs, [output], name=f"matmul{i}_{j}"))
            x, used = output, used + 1
        nodes.append(make_node("Softmax", [x], [f"s{i}"], name=f"softmax{i}", axis=-1))
        x = f"s{i}"
    nodes.append(make_node("Identity", [x], ["y"], name="out"))
    shape = [2, width]
    ends = [_float("x", shape)], [_float("y", shape)]
    onnx.save(_model(nodes, *ends, weights, "rxnmap_like"), str(path))


DEFAULT: tuple[Callable[[Path], None], ...] = (chain100k, big3g, loop_capture)
ALL: dict[str, Callable[[Path], None]] = {
    maker.__name__: maker for maker in (*DEFAULT, chain8, chain10k, rxnmap_like)
}


def main(arguments: list[str]) -> int:
    """Build the named models in a folder."""
    if not arguments or set(arguments[1:]) - set(ALL):
        print(f"usage: make_synth.py DEST [{' '.join(ALL)}]", file=sys.stderr)
        return 2
    dest = Path(arguments[0])
    dest.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or [maker.__name__ for maker in DEFAULT]:
        path = dest / f"{name}.onnx"
        ALL[name](path)
        print("built", name, path.stat().st_size, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
