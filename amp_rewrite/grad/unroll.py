"""LSTM, GRU and RNN as a function of plain operators, one copy of the cell per step.

Gates, states and masks as in the operators' definitions; see
https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html and onnx__RNN.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

# operators: the activations that each has by default.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}
OPERATORS = frozenset(_ACTIVATIONS)
"""The operators that can be unrolled."""
DOMAIN = "amp_rewrite.unrolled"
"""The domain of the functions, so that they are told apart from the operators."""
# operators: of the activations that a recurrent operator may name.
_WITHOUT_PARAMETERS = frozenset({"Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"})
_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


def obstacle(node: ir.Node) -> str | None:
    """Return what keeps a recurrent node from being unrolled; None if nothing does."""
    if _steps(node) is None:
        return "the number of steps is not static"
    if node.attributes.get("hidden_size") is None and _hidden(node) is None:
        return "the hidden size is not static"
    unknown = set(_activations(node)) - _WITHOUT_PARAMETERS
    if unknown:
        return f"the activation {sorted(unknown)[0]} takes parameters"
    return None


def body(node: ir.Node, opset: int, overload: str) -> ir.Function | None:
    """Return a function that computes what a recurrent node computes, or None (see `obstacle`).

    Args:
        node: An LSTM, GRU or RNN whose input has a recorded shape (T, N, I), or (N, T, I).
        opset: The version of ai.onnx that the function's nodes are of.
        overload: Tells the function apart from those of other nodes.
    """
    if obstacle(node) is not None:
        return None
    inputs = [ir.Value(name=name) for name in _INPUTS[: len(node.inputs)]]
    made = _Unrolled(node, inputs)
    outputs = made.outputs()
    graph = ir.Graph(inputs, outputs, nodes=made.nodes, opset_imports={"": opset})
    return ir.Function(DOMAIN, node.op_type, overload, graph=graph, attributes=[])


def _steps(node: ir.Node) -> int | None:
    x = node.inputs[0]
    if x is None or x.shape is None:
        return None
    length = x.shape.dims[node.attributes.get_int("layout", 0)]
    return length if isinstance(length, int) else None


def _hidden(node: ir.Node) -> int | None:
    given = node.attributes.get("hidden_size")
    if given is not None:
        return given.as_int()
    recurrence = node.inputs[2]
    if recurrence is None or recurrence.shape is None:
        return None
    length = recurrence.shape.dims[2]
    return length if isinstance(length, int) else None


def _directions(node: ir.Node) -> list[bool]:
    """Return, per direction, whether it runs backwards."""
    kinds = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    return kinds[node.attributes.get_string("direction", "forward")]


def _activations(node: ir.Node) -> tuple[str, ...]:
    default = _ACTIVATIONS[node.op_type] * len(_directions(node))
    return tuple(node.attributes.get_strings("activations", default))


@dataclass
class _Unrolled:
    """The nodes of one unrolled operator."""

    node: ir.Node
    inputs: list[ir.Value]
    nodes: list[ir.Node] = field(default_factory=list)

    def op(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """Append a node; return its output, or a tuple of them."""
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes),
            outputs=[ir.Value(name=f"v{len(self.nodes)}_{k}") for k in range(outputs)],
            name=f"{op_type}_{len(self.nodes)}",
        )
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def ints(self, values: Sequence[int]) -> ir.Value:
        """Return a 1-D int64 constant."""
        return self.op("Constant", value=ir.Tensor(np.array(values, np.int64)))

    def split(self, x: ir.Value, axis: int, parts: int, length: int) -> list[ir.Value]:
        """Return equal parts along an axis."""
        if parts == 1:
            return [x]
        return list(self.op("Split", x, self.ints([length] * parts), axis=axis, outputs=parts))

    def given(self, name: str) -> ir.Value | None:
        """Return an input of the function; None where the node has none."""
        index = _INPUTS.index(name)
        if len(self.inputs) <= index or self.node.inputs[index] is None:
            return None
        return self.inputs[index]

    def direction(self, name: str, index: int, axis: int = 0) -> ir.Value | None:
        """Return an input's part for one direction, without the axis of directions."""
        value = self.given(name)
        if value is None:
            return None
        parts = self.split(value, axis, len(_directions(self.node)), 1)
        return self.op("Squeeze", parts[index], self.ints([axis]))

    def outputs(self) -> list[ir.Value]:
        """Return Y, Y_h and, of an LSTM, Y_c."""
        by_batch = self.node.attributes.get_int("layout", 0)
        runs = [self.run(k, backwards) for k, backwards in enumerate(_directions(self.node))]
        steps = [self._joined([run[0][t] for run in runs], 0) for t in range(len(runs[0][0]))]
        whole = self._joined(steps, 0)  # (T, directions, N, H)
        states = [
            self._joined([run[1][k] for run in runs], by_batch) for k in range(len(runs[0][1]))
        ]
        if by_batch:
            whole = self.op("Transpose", whole, perm=[2, 0, 1, 3])
        return [whole, *states]

    def _joined(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values along a new axis."""
        apart = [self.op("Unsqueeze", v, self.ints([axis])) for v in values]
        return self.op("Concat", *apart, axis=axis)

    def run(self, index: int, backwards: bool) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return one direction's output of each step, and its last states, each (N, H)."""
        node, x = self.node, self.inputs[0]
        by_batch = node.attributes.get_int("layout", 0)
        if by_batch:
            x = self.op("Transpose", x, perm=[1, 0, 2])
        steps, hidden = _steps(node) or 0, _hidden(node) or 0
        cell = _Cell(self, index, hidden)
        projected = self.split(cell.projected(x), 0, steps, 1)
        lengths = self.given("sequence_lens")
        states = [
            self._first(x, self.direction(name, index, by_batch), hidden)
            for name in (("initial_h", "initial_c") if node.op_type == "LSTM" else ("initial_h",))
        ]
        shown: dict[int, ir.Value] = {}
        for t in reversed(range(steps)) if backwards else range(steps):
            here = self.op("Squeeze", projected[t], self.ints([0]))
            after = cell.step(here, states)
            shown[t] = after[0]
            if lengths is not None:
                valid = self._valid(lengths, t)
                zero = self.op("Sub", states[0], states[0])
                shown[t] = self.op("Where", valid, after[0], zero)
                after = [
                    self.op("Where", valid, new, old)
                    for new, old in zip(after, states, strict=True)
                ]
            states = after
        return [shown[t] for t in range(steps)], states

    def _valid(self, lengths: ir.Value, t: int) -> ir.Value:
        """Return whether each sequence has a step t: (N, 1)."""
        longer = self.op(
            "Greater", self.op("Cast", lengths, to=ir.DataType.INT64.value), self.ints([t])
        )
        return self.op("Unsqueeze", longer, self.ints([1]))

    def _first(self, x: ir.Value, given: ir.Value | None, hidden: int) -> ir.Value:
        """Return the initial state, zeros where the node gives none; x is (T, N, I)."""
        if given is not None:
            return given
        batch = self.op("Gather", self.op("Shape", x), self.ints([1]))
        shape = self.op("Concat", batch, self.ints([hidden]), axis=0)
        source = self.node.inputs[0]
        dtype = (source.dtype if source is not None else None) or ir.DataType.FLOAT
        return self.op("ConstantOfShape", shape, value=ir.Tensor(np.zeros(1, dtype.numpy())))


class _Cell:
    """One direction's weights, and what a step does with them."""

    def __init__(self, unrolled: _Unrolled, index: int, hidden: int) -> None:
        """Split the weights by direction and gate."""
        u = self._u = unrolled
        node, self._hidden = u.node, hidden
        self._gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[node.op_type]  # operators: by definition
        count = len(_ACTIVATIONS[node.op_type])
        self._activations = _activations(node)[index * count : (index + 1) * count]
        self._w, self._r = u.direction("W", index), u.direction("R", index)
        self._bias = u.direction("B", index)
        peepholes = u.direction("P", index)
        self._peepholes = None if peepholes is None else u.split(peepholes, 0, 3, hidden)
        self._reset_after = bool(node.attributes.get_int("linear_before_reset", 0))
        self._step = {"GRU": self._gru, "LSTM": self._lstm, "RNN": self._rnn}[node.op_type]
        self._recurrent_bias: ir.Value | None = None
        if node.op_type == "GRU":
            # The gates z and r, and the candidate h, meet the state apart from each other.
            self._r_zr, self._r_h = u.op(
                "Split", self._r, u.ints([2 * hidden, hidden]), axis=0, outputs=2
            )

    def projected(self, x: ir.Value) -> ir.Value:
        """Return x W^T + the biases that can be added to it, for all steps: (T, N, gates H)."""
        u = self._u
        found = u.op("MatMul", x, u.op("Transpose", self._w, perm=[1, 0]))
        if self._bias is None:
            return found
        size = self._gates * self._hidden
        by_x, by_state = u.split(self._bias, 0, 2, size)
        if u.node.op_type == "GRU" and self._reset_after:
            # The candidate's own bias is inside what the reset gate multiplies.
            lengths = u.ints([2 * self._hidden, self._hidden])
            by_gates, self._recurrent_bias = u.op("Split", by_state, lengths, axis=0, outputs=2)
            none = u.op("Sub", self._recurrent_bias, self._recurrent_bias)
            by_state = u.op("Concat", by_gates, none, axis=0)
        return u.op("Add", found, u.op("Add", by_x, by_state))

    def step(self, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the states after a step; x is (N, gates H), each state (N, H)."""
        return self._step(x, states)

    def _activate(self, which: int, x: ir.Value) -> ir.Value:
        clip = self._u.node.attributes.get("clip")
        if clip is not None and clip.as_float() > 0:
            x = self._clipped(x, clip.as_float())
        return self._u.op(self._activations[which], x)

    def _clipped(self, x: ir.Value, limit: float) -> ir.Value:
        source = self._u.node.inputs[0]
        dtype = (source.dtype if source is not None else None) or ir.DataType.FLOAT
        ends = [
            self._u.op("Constant", value=ir.Tensor(np.array(n, dtype.numpy())))
            for n in (-limit, limit)
        ]
        return self._u.op("Clip", x, *ends)

    def _rnn(self, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = f(x + H R^T)."""
        return [self._activate(0, self._u.op("Gemm", states[0], self._r, x, transB=1))]

    def _gru(self, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = (1 - z) h + z H; h = g(x + (r H) R^T), or g(x + r (H R^T + b))."""
        u, n, (state,) = self._u, self._hidden, states
        x_zr, x_h = u.op("Split", x, u.ints([2 * n, n]), axis=1, outputs=2)
        z, r = u.split(u.op("Gemm", state, self._r_zr, x_zr, transB=1), 1, 2, n)
        z, r = self._activate(0, z), self._activate(0, r)
        if self._reset_after:
            inner = u.op("Gemm", state, self._r_h, self._recurrent_bias, transB=1)
            candidate = u.op("Add", x_h, u.op("Mul", r, inner))
        else:
            candidate = u.op("Gemm", u.op("Mul", r, state), self._r_h, x_h, transB=1)
        candidate = self._activate(1, candidate)
        # (1 - z) h + z H = h + z (H - h)
        return [u.op("Add", candidate, u.op("Mul", z, u.op("Sub", state, candidate)))]

    def _lstm(self, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """C = f C + i g(c), H = o h(C); gates in the order i, o, f, c; peepholes see C."""
        u, (state, memory) = self._u, states
        gates = u.op("Gemm", state, self._r, x, transB=1)
        i, o, f, c = u.split(gates, 1, 4, self._hidden)
        i = self._activate(0, self._peeped(i, 0, memory))
        if u.node.attributes.get_int("input_forget", 0):
            kept = u.op("Sub", memory, u.op("Mul", i, memory))
        else:
            kept = u.op("Mul", self._activate(0, self._peeped(f, 2, memory)), memory)
        memory = u.op("Add", kept, u.op("Mul", i, self._activate(1, c)))
        o = self._activate(0, self._peeped(o, 1, memory))
        shown = u.op(self._activations[2], memory)
        return [u.op("Mul", o, shown), memory]

    def _peeped(self, gate: ir.Value, which: int, memory: ir.Value) -> ir.Value:
        if self._peepholes is None:
            return gate
        return self._u.op("Add", gate, self._u.op("Mul", self._peepholes[which], memory))
