"""LSTM, GRU and RNN as a function of plain operators: unrolled, or a Loop over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.recurrent.description import Description, Emitter

DOMAIN = "amp_rewrite.recurrent"
"""The domain of the functions, so that they are told apart from the operators."""
_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_WEIGHTS = ("W", "R", "B", "P")

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}  # operators: by definition


def body(node: ir.Node, opset: int, overload: str) -> ir.Function | None:
    """Return a function that computes what a recurrent node computes.

    None where that cannot be done; `Description.obstacle` tells why.

    Args:
        node: An LSTM, GRU or RNN.
        opset: The version of ai.onnx that the function's nodes are of.
        overload: Tells the function apart from those of other nodes.
    """
    description = Description(node)
    if description.obstacle() is not None:
        return None
    inputs = [ir.Value(name=name) for name in _INPUTS[: len(node.inputs)]]
    function = _Function(description, inputs)
    outputs = function.outputs()[: len(node.outputs)]
    graph = ir.Graph(inputs, outputs, nodes=function.e.nodes, opset_imports={"": opset})
    return ir.Function(DOMAIN, node.op_type, overload, graph=graph, attributes=[])


class _Function:
    """The function's nodes; X is brought to (T, N, I) first.

    Attributes:
        e: Makes them.
    """

    def __init__(self, node: Description, inputs: Sequence[ir.Value]) -> None:
        """Take the inputs of the function, all of which a node may lack but X, W and R."""
        self.e, self._node = Emitter(), node
        self._hidden = node.hidden or 0
        present = zip(_INPUTS, inputs, node.node.inputs, strict=False)
        self._given = {name: v for name, v, source in present if source is not None}
        x = self._given["X"]
        self._x = self.e.op("Transpose", x, perm=[1, 0, 2]) if node.by_batch else x
        self._length = self._along(0)
        lengths = self._given.get("sequence_lens")
        self._lengths = None if lengths is None else self._column(lengths)

    def outputs(self) -> list[ir.Value]:
        """Return Y, Y_h and, of an LSTM, Y_c."""
        by_batch, e = self._node.by_batch, self.e
        runs = [self._run(k, backwards) for k, backwards in enumerate(self._node.directions)]
        whole = e.stack([shown for shown, _ in runs], 1)  # (T, directions, N, H)
        if by_batch:
            whole = e.op("Transpose", whole, perm=[2, 0, 1, 3])
        lasts = zip(*(states for _, states in runs), strict=True)
        return [whole, *(e.stack(states, int(by_batch)) for states in lasts)]

    def _run(self, direction: int, backwards: bool) -> tuple[ir.Value, list[ir.Value]]:
        """Return one direction's output of all steps (T, N, H), and its last states (N, H)."""
        weights = {name: self._of(direction, name, 0) for name in _WEIGHTS}
        cell = _Cell(self.e, self._node, self._hidden, direction, weights)
        projected = cell.projected(self.e, self._x)
        firsts = [self._first(direction, name) for name in self._node.states]
        run = self._unrolled if self._node.is_unrolled else self._looped
        shown, states = run(cell, projected, firsts, backwards)
        return shown, [self._last(state) for state in states]

    def _unrolled(
        self, cell: _Cell, projected: ir.Value, states: list[ir.Value], backwards: bool
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what `_run` does: each step has nodes of its own."""
        e, steps = self.e, self._node.steps or 0
        parts, axis = e.split(projected, 0, steps, 1), e.constant([0])
        shown: dict[int, ir.Value] = {}
        for t in reversed(range(steps)) if backwards else range(steps):
            here = e.op("Squeeze", parts[t], axis)
            shown[t], states = self._step(e, cell, here, states, e.constant(t))
        return e.stack([shown[t] for t in range(steps)], 0), states

    def _looped(
        self, cell: _Cell, projected: ir.Value, states: list[ir.Value], backwards: bool
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what `_run` does: a Loop with a turn for each step."""
        e, inner = self.e, self.e.inside()
        turn, goes_on = inner.value("turn", ir.DataType.INT64), inner.value("on", ir.DataType.BOOL)
        dtype, shape = self._node.dtype, (self._node.batch, self._hidden)
        before = [inner.value("state", dtype, shape) for _ in states]
        t = turn
        if backwards:
            last = e.op("Sub", self._length, e.constant(1))
            t = inner.op("Sub", last, turn)
        here = inner.op("Gather", projected, t, axis=0)
        shown, after = self._step(inner, cell, here, before, t)
        # An output of a body is computed in it, and is one output only.
        ends = [inner.op("Identity", value) for value in (goes_on, *after, shown)]
        body = ir.Graph([turn, goes_on, *before], ends, nodes=inner.nodes, name=f"{turn.name}_body")
        *states, shown = e.op("Loop", self._length, None, *states, outputs=len(ends) - 1, body=body)
        for state in states:  # inference does not tell, since a Loop may change shapes
            state.type, state.shape = ir.TensorType(dtype), ir.Shape(shape)
        return self._shaped(e.reversed(shown) if backwards else shown), states

    def _shaped(self, shown: ir.Value) -> ir.Value:
        """Return (T, N, H) in that shape, of which a Loop without turns knows T and H alone."""
        e, axis = self.e, self.e.constant([0])
        lengths = [e.op("Unsqueeze", length, axis) for length in (self._length, self._along(1))]
        shape = e.op("Concat", *lengths, e.constant([self._hidden]), axis=0)
        # A 0 in the shape copies a length, which is 0 then.
        return e.op("Reshape", shown, shape)

    def _step(
        self, e: Emitter, cell: _Cell, x: ir.Value, states: Sequence[ir.Value], t: ir.Value
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what step t shows, and the states after it, with sequences that end before t."""
        after = cell.step(e, x, states)
        if self._lengths is None:
            return after[0], after
        valid = e.op("Greater", self._lengths, t)
        kept = [e.op("Where", valid, new, old) for new, old in zip(after, states, strict=True)]
        return e.op("Where", valid, after[0], self._zero(e)), kept

    def _last(self, state: ir.Value) -> ir.Value:
        """Return a last state: zeros for a sequence of length 0, as the kernels give it."""
        e, lengths = self.e, self._lengths
        if lengths is None and self._node.is_unrolled:
            return state
        some = e.op("Greater", self._length if lengths is None else lengths, e.constant(0))
        return e.op("Where", some, state, self._zero(e))

    def _zero(self, e: Emitter) -> ir.Value:
        return e.constant(0, self._node.dtype)

    def _along(self, axis: int) -> ir.Value:
        """Return a length of X: an int64 scalar."""
        return self.e.op("Gather", self.e.op("Shape", self._x), self.e.constant(axis))

    def _column(self, lengths: ir.Value) -> ir.Value:
        """Return the lengths of the sequences as (N, 1) int64."""
        wide = self.e.op("Cast", lengths, to=ir.DataType.INT64.value)
        return self.e.op("Unsqueeze", wide, self.e.constant([1]))

    def _of(self, direction: int, name: str, axis: int) -> ir.Value | None:
        """Return an input's part for one direction, without the axis of directions."""
        value = self._given.get(name)
        if value is None:
            return None
        parts = self.e.split(value, axis, len(self._node.directions), 1)
        return self.e.op("Squeeze", parts[direction], self.e.constant([axis]))

    def _first(self, direction: int, name: str) -> ir.Value:
        """Return an initial state (N, H), zeros where the node gives none."""
        e, state = self.e, self._of(direction, name, int(self._node.by_batch))
        if state is not None:
            return state
        batch = e.op("Unsqueeze", self._along(1), e.constant([0]))
        shape = e.op("Concat", batch, e.constant([self._hidden]), axis=0)
        zero = ir.Tensor(np.zeros(1, self._node.dtype.numpy()))
        return e.op("ConstantOfShape", shape, value=zero)


class _Cell:
    """One direction's weights, and what a step does with them."""

    def __init__(
        self, e: Emitter, node: Description, hidden: int, direction: int, weights: dict[str, Any]
    ) -> None:
        """Split the weights of a direction, W, R, B and P without that axis or None, by gate."""
        self._node, self._hidden = node, hidden
        self._activations = node.activations_of(direction)
        self._w, self._r, self._bias = weights["W"], weights["R"], weights["B"]
        peepholes = weights["P"]
        self._peepholes = None if peepholes is None else e.split(peepholes, 0, 3, hidden)
        self._reset_after = bool(node.node.attributes.get_int("linear_before_reset", 0))
        self._input_forget = bool(node.node.attributes.get_int("input_forget", 0))
        self._recurrent_bias: ir.Value | None = None
        if node.op == "GRU":
            # The gates z and r, and the candidate h, meet the state apart from each other.
            lengths = e.constant([2 * hidden, hidden])
            self._r_zr, self._r_h = e.op("Split", self._r, lengths, axis=0, outputs=2)

    def projected(self, e: Emitter, x: ir.Value) -> ir.Value:
        """Return x W^T + the biases that can be added to it, for all steps: (T, N, gates H)."""
        product = e.op("MatMul", x, e.op("Transpose", self._w, perm=[1, 0]))
        if self._bias is None:
            return product
        size = _GATES[self._node.op] * self._hidden
        by_x, by_state = e.split(self._bias, 0, 2, size)
        if self._node.op == "GRU" and self._reset_after:
            # The candidate's own bias is inside what the reset gate multiplies.
            lengths = e.constant([2 * self._hidden, self._hidden])
            by_gates, self._recurrent_bias = e.op("Split", by_state, lengths, axis=0, outputs=2)
            none = e.op("Sub", self._recurrent_bias, self._recurrent_bias)
            by_state = e.op("Concat", by_gates, none, axis=0)
        return e.op("Add", product, e.op("Add", by_x, by_state))

    def step(self, e: Emitter, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the states after a step.

        Args:
            e: Makes the nodes of the step.
            x: What `projected` returned, of the step: (N, gates H).
            states: Those before it: (N, H) each.
        """
        return _STEPS[self._node.op](self, e, x, states)

    def _activate(self, e: Emitter, which: int, x: ir.Value) -> ir.Value:
        limit, dtype = self._node.clip, self._node.dtype
        if limit is not None:
            x = e.op("Clip", x, e.constant(-limit, dtype), e.constant(limit, dtype))
        return self._activations[which].apply(e, x, dtype)

    def rnn(self, e: Emitter, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = f(x + H R^T)."""
        return [self._activate(e, 0, e.op("Gemm", states[0], self._r, x, transB=1))]

    def gru(self, e: Emitter, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = (1 - z) h + z H; h = g(x + (r H) R^T), or g(x + r (H R^T + b))."""
        n, (state,) = self._hidden, states
        x_zr, x_h = e.op("Split", x, e.constant([2 * n, n]), axis=1, outputs=2)
        z, r = e.split(e.op("Gemm", state, self._r_zr, x_zr, transB=1), 1, 2, n)
        z, r = self._activate(e, 0, z), self._activate(e, 0, r)
        if self._reset_after:
            bias = [] if self._recurrent_bias is None else [self._recurrent_bias]
            inner = e.op("Gemm", state, self._r_h, *bias, transB=1)
            candidate = e.op("Add", x_h, e.op("Mul", r, inner))
        else:
            candidate = e.op("Gemm", e.op("Mul", r, state), self._r_h, x_h, transB=1)
        candidate = self._activate(e, 1, candidate)
        # (1 - z) h + z H = h + z (H - h)
        return [e.op("Add", candidate, e.op("Mul", z, e.op("Sub", state, candidate)))]

    def lstm(self, e: Emitter, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """C = f C + i g(c), H = o h(C); gates in the order i, o, f, c; peepholes see C."""
        state, memory = states
        gates = e.op("Gemm", state, self._r, x, transB=1)
        i, o, f, c = e.split(gates, 1, 4, self._hidden)
        i = self._activate(e, 0, self._peeped(e, i, 0, memory))
        if self._input_forget:
            kept = e.op("Sub", memory, e.op("Mul", i, memory))
        else:
            kept = e.op("Mul", self._activate(e, 0, self._peeped(e, f, 2, memory)), memory)
        memory = e.op("Add", kept, e.op("Mul", i, self._activate(e, 1, c)))
        o = self._activate(e, 0, self._peeped(e, o, 1, memory))
        shown = self._activations[2].apply(e, memory, self._node.dtype)
        return [e.op("Mul", o, shown), memory]

    def _peeped(self, e: Emitter, gate: ir.Value, which: int, memory: ir.Value) -> ir.Value:
        if self._peepholes is None:
            return gate
        return e.op("Add", gate, e.op("Mul", self._peepholes[which], memory))


_Step = Callable[[_Cell, Emitter, ir.Value, Sequence[ir.Value]], list[ir.Value]]
_STEPS: dict[str, _Step] = {"GRU": _Cell.gru, "LSTM": _Cell.lstm, "RNN": _Cell.rnn}
