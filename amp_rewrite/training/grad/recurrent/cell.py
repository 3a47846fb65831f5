"""One step of an LSTM, GRU or RNN.

Gates and states as in the operators' definitions; see
https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html and onnx__RNN.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.training.grad.recurrent.description import Description
from amp_rewrite.training.grad.recurrent.emitter import Emitter

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}  # operators: by definition


class Cell:
    """One direction's weights, and what a step does with them."""

    def __init__(
        self, e: Emitter, node: Description, hidden: int, direction: int, weights: dict[str, Any]
    ) -> None:
        """Split the weights by gate.

        Args:
            e: Makes the nodes that all steps share.
            node: The recurrent node.
            hidden: The length of a state.
            direction: Which direction.
            weights: Its W, R, B and P without the axis of directions; None for those it lacks.
        """
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
        found = e.op("MatMul", x, e.op("Transpose", self._w, perm=[1, 0]))
        if self._bias is None:
            return found
        size = GATES[self._node.op] * self._hidden
        by_x, by_state = e.split(self._bias, 0, 2, size)
        if self._node.op == "GRU" and self._reset_after:
            # The candidate's own bias is inside what the reset gate multiplies.
            lengths = e.constant([2 * self._hidden, self._hidden])
            by_gates, self._recurrent_bias = e.op("Split", by_state, lengths, axis=0, outputs=2)
            none = e.op("Sub", self._recurrent_bias, self._recurrent_bias)
            by_state = e.op("Concat", by_gates, none, axis=0)
        return e.op("Add", found, e.op("Add", by_x, by_state))

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


Step = Callable[[Cell, Emitter, ir.Value, Sequence[ir.Value]], list[ir.Value]]
_STEPS: dict[str, Step] = {"GRU": Cell.gru, "LSTM": Cell.lstm, "RNN": Cell.rnn}
