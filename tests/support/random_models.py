"""Random models: every tensor is float32 (2, 4), so that any operator fits behind any other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.oplists import OpLists

SHAPE = (2, 4)
OPERATORS = (
    *("MatMul", "Gemm", "Add", "Sub", "Mul", "Sum", "Mean", "Relu", "Neg", "Sigmoid", "Tanh"),
    *("Softmax", "ReduceMean", "Identity", "Reshape", "Concat", "Split", "Transpose", "Where"),
    *("Max", "Clip", "If", "Loop", "Scan", "SequenceConstruct", "SequenceAt", "Square", "Custom"),
    *("LayerNormalization", "CastLow", "CastHigh", "Dropout", "Exp", "Pow"),
)
LISTED = tuple(op for op in OPERATORS if op not in ("Square", "Custom", "CastLow", "CastHigh"))
DEPTH = 2

Step = tuple[str, int, int, tuple[Any, ...]]


def steps(depth: int = 0) -> st.SearchStrategy[list[Step]]:
    """Return lists of (operator, first operand, second operand, the body's steps)."""
    body = steps(depth + 1) if depth < DEPTH else st.just([])
    step = st.tuples(
        st.sampled_from(OPERATORS), st.integers(0, 11), st.integers(0, 11), body.map(tuple)
    )
    return st.lists(step, min_size=1, max_size=8 if depth == 0 else 3)


def assignments() -> st.SearchStrategy[dict[str, str]]:
    """Return operator -> list name."""
    names = st.sampled_from(("allow", "deny", "infer", "infer", "clear", "clear", "none"))
    return st.fixed_dictionaries(dict.fromkeys(LISTED, names))


def lists_from(assigned: dict[str, str]) -> OpLists:
    by_list: dict[str, Any] = {
        n: [op for op, name in assigned.items() if name == n] for n in ("deny", "infer")
    }
    by_list["allow"] = [op for op, name in assigned.items() if name == "allow"] + ["Einsum"]
    by_list["clear"] = [op for op, name in assigned.items() if name == "clear"]
    return OpLists.from_names(**by_list, precision="float16")


@dataclass
class Builder:
    """Adds nodes to one graph; names are unique over the model."""

    prefix: str
    values: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    count: int = 0

    def add(self, op: str, inputs: list[str], n_outputs: int = 1, **attributes: Any) -> list[str]:
        self.count += 1
        outputs = [f"{self.prefix}{op}{self.count}_{i}" for i in range(n_outputs)]
        name = f"{self.prefix}{op}{self.count}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs

    def step(self, step: Step) -> None:
        op, first, second, body = step
        a, b = (self.values[-1 - i % len(self.values)] for i in (first, second))
        self.values += (
            getattr(self, f"_{op.lower()}")(a, b, body)
            if op in SPECIAL
            else (self.add(op, [a, b] if op in BINARY else [a]))
        )

    def _matmul(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("MatMul", [a, "w"])

    def _gemm(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Gemm", [a, "w", b])

    def _reshape(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Reshape", [*self.add("Reshape", [a, "flat"]), "shape"])

    def _concat(self, a: str, b: str, body: Any) -> list[str]:
        joined = self.add("Concat", [a, b], axis=0)
        return self.add("Split", joined, 2, axis=0, num_outputs=2)

    def _split(self, a: str, b: str, body: Any) -> list[str]:
        left, right = self.add("Split", [a], 2, axis=1, num_outputs=2)
        return self.add("Concat", [right, left], axis=1)

    def _transpose(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Transpose", self.add("Transpose", [a], perm=[1, 0]), perm=[1, 0])

    def _where(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Where", ["mask", a, b])

    def _clip(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Clip", [a, "low", "high"])

    def _reducemean(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Add", [b, *self.add("ReduceMean", [a, "axis"], keepdims=1)])

    def _square(self, a: str, b: str, body: Any) -> list[str]:
        bounded = self.add("Tanh", [a])[0]
        squares = self.add("Mul", [bounded, bounded])
        return self.add("Sub", [b, *self.add("ReduceMean", [*squares, "axis"], keepdims=1)])

    def _pow(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Pow", [*self.add("Tanh", [a]), "two"])

    def _exp(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Exp", self.add("Tanh", [a]))

    def _layernormalization(self, a: str, b: str, body: Any) -> list[str]:
        noisy = self.add("Add", [*self.add("Tanh", [b]), "ramp"])
        normal, mean, _ = self.add("LayerNormalization", [*noisy, "scale"], 3)
        return [normal, *self.add("Add", [a, mean])]

    def _custom(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Cos", [a])  # on no list

    def _castlow(self, a: str, b: str, body: Any) -> list[str]:
        low = self.add("Cast", [a], to=TensorProto.FLOAT16)
        return self.add("Cast", low, to=TensorProto.FLOAT)

    def _casthigh(self, a: str, b: str, body: Any) -> list[str]:
        return self.add("Cast", [a], to=TensorProto.FLOAT)

    def _sequenceconstruct(self, a: str, b: str, body: Any) -> list[str]:
        sequence = self.add("SequenceConstruct", [a, b])
        return self.add("SequenceAt", [*sequence, "one"])

    _sequenceat = _sequenceconstruct

    def _if(self, a: str, b: str, body: Any) -> list[str]:
        then = self._body("then", [], [a, b], body[::2])
        other = self._body("else", [], [b, a], body[1::2])
        return self.add("If", ["condition"], 1, then_branch=then, else_branch=other)

    def _loop(self, a: str, b: str, body: Any) -> list[str]:
        name = f"{self.prefix}loop{self.count}"
        inputs = [
            helper.make_tensor_value_info(f"{name}i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{name}c", TensorProto.BOOL, []),
            info(f"{name}s"),
        ]
        inner = Builder(f"{name}_", [b, f"{name}s"])
        for step in body:
            inner.step(step)
        keep = inner.add("Identity", [f"{name}c"])[0]
        bounded = inner.add("Tanh", [inner.values[-1]])[0]
        scanned = inner.add("Neg", [inner.values[0]])[0]
        outputs = [helper.make_tensor_value_info(keep, TensorProto.BOOL, [])]
        graph = helper.make_graph(
            inner.nodes, name, inputs, [*outputs, info(bounded), info(scanned)]
        )
        final, stacked = self.add("Loop", ["trips", "condition", a], 2, body=graph)
        return [final, *self.add("Gather", [stacked, "one"], axis=0)]

    def _scan(self, a: str, b: str, body: Any) -> list[str]:
        name = f"{self.prefix}scan{self.count}"
        rows = self.add("Unsqueeze", [b, "axis0"])
        inner = Builder(f"{name}_", [a, f"{name}s", f"{name}e"])
        for step in body:
            inner.step(step)
        state = inner.add("Tanh", [inner.values[-1]])[0]
        graph = helper.make_graph(
            inner.nodes, name, [info(f"{name}s"), info(f"{name}e")], [info(state)]
        )
        return self.add("Scan", [a, *rows], 1, body=graph, num_scan_inputs=1)

    def _body(self, role: str, inputs: list[Any], values: list[str], body: Any) -> Any:
        name = f"{self.prefix}{role}{self.count}"
        inner = Builder(f"{name}_", list(values))
        if len(body) % 2:
            weight = numpy_helper.from_array(np.full(SHAPE, 0.5, np.float32))
            inner.values += inner.add("Constant", [], value=weight)
        for step in body:
            inner.step(step)
        if not inner.nodes:
            inner.values += inner.add("Identity", [values[0]])
        return helper.make_graph(inner.nodes, name, inputs, [info(inner.nodes[-1].output[0])])


BINARY = frozenset({"Add", "Sub", "Mul", "Sum", "Mean", "Max"})
SPECIAL = frozenset(op for op in OPERATORS if hasattr(Builder, f"_{op.lower()}"))


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)


def build(given: list[Step], seed: int, n_outputs: int) -> onnx.ModelProto:
    """Return a model with inputs x and z; its outputs are its last values."""
    rng = np.random.default_rng(seed)
    builder = Builder("", ["z", "x"])
    for step in given:
        builder.step(step)
    made = [o for n in builder.nodes for o in n.output if o in builder.values]
    constants = {
        "w": rng.uniform(-0.5, 0.5, (4, 4)).astype(np.float32),
        "flat": np.array([8]),
        "shape": np.array(SHAPE),
        "mask": rng.random(SHAPE) < 0.5,
        "low": np.float32(-0.75),
        "high": np.float32(0.75),
        "axis": np.array([1]),
        "axis0": np.array([0]),
        "two": np.float32(2),
        "scale": np.ones(4, np.float32),
        "ramp": np.arange(8, dtype=np.float32).reshape(SHAPE) ** 2 / 4,
        "one": np.array(1),
        "trips": np.array(2),
        "condition": np.array(True),
    }
    used = read(builder.nodes)
    graph = helper.make_graph(
        builder.nodes,
        "random",
        [info("x"), info("z")],
        [info(name) for name in dict.fromkeys(made[-n_outputs:])],
        [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def read(nodes: Any) -> set[str]:
    """Return the names that nodes read, at any depth."""
    found = {name for node in nodes for name in node.input}
    for node in nodes:
        for attribute in node.attribute:
            found |= read(attribute.g.node)
    return found
